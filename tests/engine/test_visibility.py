"""Law 8: a constraint is visible if an accepted rendering occurs in the decoded text of exactly the prompt ids."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from agentenv.engine.visibility import VisibilityTracker, accepted, visibility
from agentenv.errors import ConfigError, LawBreach
from agentenv.records.axes import CompactionOutcome, Purpose, VisibilityLevel
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Carrier, CheckerSpec, Constraint, Visibility
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = ["do not change the original file, never push; leave data alone and go on. " * 3, "ordnung der dateien " * 5]


@cache
def _byte_level() -> Tokenizer:
    """Train a tokenizer over bytes (GPT-2, Qwen, Llama 3): characters are split over tokens at will."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


@cache
def _byte_fallback() -> Tokenizer:
    """Build a tokenizer over characters with single bytes for the rest (Llama 2, Mistral, Gemma)."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(set("".join(CORPUS))), "▁", "\n", "<|end|>"]
    merges = [("d", "o"), ("▁", "n"), ("▁n", "o"), ("▁", "t"), ("l", "e"), ("▁", "f"), ("t", "h"), ("▁", "do")]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, *(a + b for a, b in merges)]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {"byte level": _byte_level, "byte fallback": _byte_fallback}


def _decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def _encode(tokenizer: Tokenizer, text: str) -> array[int]:
    return array("i", tokenizer.encode(text, add_special_tokens=False).ids)


def _rule(text: str, *renderings: str, id: str = "c0") -> Constraint:
    return Constraint(
        id=id,
        text=text,
        carrier=Carrier(message_id="m1", start=0, end=len(text)),
        checker=CheckerSpec(name="file-unchanged", arguments={"path": "a"}),
        renderings=renderings,
    )


def _compaction(id: str, outcome: CompactionOutcome = CompactionOutcome.APPLIED) -> Compaction:
    return Compaction(
        id=id,
        compressor="window:10",
        trigger="budget",
        budget_tokens=10,
        edits=(),
        tokens_before=20,
        tokens_after=5,
        outcome=outcome,
    )


def _smallest_range(text: str, ids: array[int], decode: Callable[[Sequence[int]], str]) -> tuple[int, int]:
    """Find the first occurrence the slow way: the shortest prefix that has it, and its shortest end that still does."""
    end = next(end for end in range(1, len(ids) + 1) if text in decode(ids[:end]))
    start = next(start for start in range(end - 1, -1, -1) if text in decode(ids[start:end]))
    return start, end


WORDS = st.sampled_from(["do not", " change", "é", "日本", "🙂", "e\u0301", " file", "\n", "  ", "a", "<|end|>", "Ω"])
TEXTS = st.lists(WORDS, max_size=12).map("".join)
RULES = st.lists(WORDS, min_size=1, max_size=6).map("".join).filter(lambda text: text.strip())


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_rule_in_the_prompt_is_visible_on_its_tokens(kind: str):
    """Law 8: visible iff an accepted rendering occurs in the decoded text of exactly the prompt ids.

    The range is the smallest whose own text has the first occurrence, also where characters are split over tokens.
    """
    tokenizer = TOKENIZERS[kind]()
    decode = _decoder(tokenizer)

    @settings(max_examples=150, deadline=None)
    @given(before=TEXTS, rule=RULES, after=TEXTS, present=st.booleans())
    def run(before: str, rule: str, after: str, present: bool) -> None:
        ids = _encode(tokenizer, before + (rule if present else "") + after + "\n")
        (entry,) = visibility([_rule(rule)], ids, decode)
        text = rule.strip()
        if text not in decode(ids):
            assert entry == Visibility(constraint_id="c0", level=VisibilityLevel.ABSENT)
        else:
            assert (entry.level, entry.compaction_id) == (VisibilityLevel.VERBATIM, None)
            assert (entry.token_start, entry.token_end) == _smallest_range(text, ids, decode)

    run()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_tracker_says_of_every_prompt_what_its_whole_text_says(kind: str):
    """Law 8, step by step: decoding only what is new gives the levels and ranges that decoding everything gives."""
    tokenizer = TOKENIZERS[kind]()
    decode = _decoder(tokenizer)

    @settings(max_examples=100, deadline=None)
    @given(
        rules=st.lists(RULES, min_size=1, max_size=3),
        parts=st.lists(st.tuples(TEXTS, st.integers(0, 4)), min_size=1, max_size=6),
        apart=st.booleans(),
    )
    def run(rules: list[str], parts: list[tuple[str, int]], apart: bool) -> None:
        constraints = [_rule(rule, "do not push", id=f"c{n}") for n, rule in enumerate(rules)]
        tracker = VisibilityTracker(constraints, decode)
        prompt = array("i")
        for text, which in parts:
            stated = rules[which] if which < len(rules) else ("do not push" if which == 3 else "")
            new = _encode(tokenizer, text + stated + "\n")
            expected = visibility(constraints, prompt + new, decode)
            seen = tracker.observe(0, prompt, new) if apart else tracker.observe(0, prompt + new)
            assert seen == expected
            prompt += new

    run()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_rule_split_between_two_prompts_is_found(kind: str):
    """The overlap is long enough for a rule whose tokens came in part with an earlier prompt, cut anywhere."""
    tokenizer = TOKENIZERS[kind]()
    decode = _decoder(tokenizer)
    rule = "do not touch 日本🙂 data/é.csv, whatever happens"
    ids = _encode(tokenizer, f"x {rule}\n")
    expected = visibility([_rule(rule)], ids, decode)
    for cut in range(1, len(ids)):
        tracker = VisibilityTracker([_rule(rule)], decode)
        tracker.observe(0, ids[:cut])
        assert tracker.observe(0, ids[:cut], ids[cut:]) == expected


def test_renderings_count_and_the_first_complete_one_is_reported():
    """A rule may be stated in other words that its task accepts."""
    tokenizer = _byte_level()
    rule = _rule("leave data alone", "never push")
    ids = _encode(tokenizer, "so never push; leave data alone")
    (entry,) = visibility([rule], ids, _decoder(tokenizer))
    assert _decoder(tokenizer)(ids[entry.token_start : entry.token_end]).strip(" ;") == "never push"


def test_a_text_that_was_wrapped_anew_is_absent_for_now():
    """There are two levels, verbatim and absent; blanks inside a rendering are part of it."""
    tokenizer = _byte_level()
    ids = _encode(tokenizer, "do not change\nthe file")
    assert visibility([_rule("do not change the file")], ids, _decoder(tokenizer))[0].level is VisibilityLevel.ABSENT
    wrapped = _rule("do not change the file", "do not change\nthe file")
    assert visibility([wrapped], ids, _decoder(tokenizer))[0].level is VisibilityLevel.VERBATIM


def test_a_text_that_the_tokenizer_normalises_is_found_as_it_spells_it():
    """Some vocabularies encode composed characters only (Qwen): the rule counts as stated in what is left of it."""
    tokenizer = _byte_level()
    composed = normalizers.NFC()

    def encode(text: str) -> array[int]:
        return _encode(tokenizer, composed.normalize_str(text))

    def spell(text: str) -> str:
        return tokenizer.decode(encode(text))

    rule = _rule("leave cafe\u0301.csv alone")
    ids = encode("please leave cafe\u0301.csv alone")
    decode = _decoder(tokenizer)
    assert accepted(rule, spell) == ("leave cafe\u0301.csv alone", "leave caf\u00e9.csv alone")
    assert visibility([rule], ids, decode)[0].level is VisibilityLevel.ABSENT
    assert visibility([rule], ids, decode, spell=spell)[0].level is VisibilityLevel.VERBATIM
    assert VisibilityTracker([rule], decode, spell=spell).observe(0, ids)[0].level is VisibilityLevel.VERBATIM


@pytest.mark.parametrize("text", ["", " \n", "a\ufffdb"])
def test_a_rule_that_could_be_anywhere_is_refused(text: str):
    """A blank rendering is in every prompt, and U+FFFD stands for any bytes that are no text."""
    with pytest.raises(ConfigError, match="constraint 'c0' cannot be found"):
        VisibilityTracker([_rule("leave it", text)], _decoder(_byte_level()))


# ------------------------------------------------------------------ who took it away


class Episode:
    """Renders prompts from texts, and tells the tracker of compactions."""

    def __init__(self, *rules: Constraint) -> None:
        self._tokenizer = _byte_level()
        self.tracker = VisibilityTracker(rules, _decoder(self._tokenizer))
        self._segment = -1
        self._n_compactions = 0

    def prompt(self, text: str, purpose: Purpose = Purpose.ACT) -> list[str]:
        """Render a prompt in a segment of its own; give visible ones as ``+``, the others as what took them."""
        self._segment += 1
        seen = self.tracker.observe(self._segment, _encode(self._tokenizer, text), purpose=purpose)
        return ["+" if e.level is VisibilityLevel.VERBATIM else (e.compaction_id or "-") for e in seen]

    def compact(self, outcome: CompactionOutcome = CompactionOutcome.APPLIED) -> None:
        self.tracker.compacted(_compaction(f"k{self._n_compactions}", outcome))
        self._n_compactions += 1


def test_the_compaction_that_removed_a_rule_is_remembered():
    """It is the one between the last prompt with the rule and the first without; later ones change nothing."""
    episode = Episode(_rule("leave data"), _rule("go on", id="c1"))
    assert episode.prompt("leave data. go on.") == ["+", "+"]
    episode.compact()
    assert episode.prompt("leave data.") == ["+", "k0"]
    episode.compact()
    assert episode.prompt("nothing") == ["k1", "k0"]
    episode.compact()
    assert episode.prompt("nothing") == ["k1", "k0"]


def test_a_rule_that_comes_back_can_be_removed_again():
    """Visible again means that nothing took it; the next compaction that removes it is named."""
    episode = Episode(_rule("leave data"))
    episode.prompt("leave data")
    episode.compact()
    assert episode.prompt("nothing") == ["k0"]
    assert episode.prompt("a tool read: leave data") == ["+"]
    episode.compact()
    assert episode.prompt("nothing") == ["k1"]


def test_a_rule_that_was_never_visible_was_not_removed():
    """Law 9's breach must not be laid at the door of a compaction that had nothing to do with it."""
    episode = Episode(_rule("leave data"))
    assert episode.prompt("nothing") == ["-"]
    episode.compact()
    assert episode.prompt("nothing") == ["-"]


def test_a_rule_that_a_new_segment_lost_without_compaction_was_not_removed_by_one():
    """A template that leaves out old text is another reason; a later compaction is not to blame either."""
    episode = Episode(_rule("leave data"))
    episode.prompt("leave data")
    assert episode.prompt("nothing") == ["-"]
    episode.compact()
    assert episode.prompt("nothing") == ["-"]


def test_a_failed_compaction_removed_nothing():
    """The history was unchanged, so it is not to blame."""
    episode = Episode(_rule("leave data"), _rule("go on", id="c1"))
    episode.prompt("leave data. go on.")
    episode.compact()
    episode.compact(CompactionOutcome.FAILED)
    assert episode.prompt("go on") == ["k0", "+"]
    episode.compact(CompactionOutcome.FAILED)
    assert episode.prompt("nothing") == ["k0", "-"]


def test_a_prompt_for_a_summary_does_not_decide_who_removed_what():
    """It has messages of its own: whether the rule is in it is reported, and nothing follows from it."""
    episode = Episode(_rule("leave data"))
    episode.prompt("leave data")
    assert episode.prompt("sum up", Purpose.SUMMARY) == ["-"]
    assert episode.prompt("sum up: leave data", Purpose.SUMMARY) == ["+"]
    episode.compact()
    assert episode.prompt("summary: nothing") == ["k0"]
    assert episode.prompt("sum up", Purpose.SUMMARY) == ["k0"]
    assert episode.prompt("nothing") == ["k0"]


# ------------------------------------------------------------------ cost


class Meter:
    """Decodes, and counts what it decoded."""

    def __init__(self) -> None:
        self.n_ids = 0
        self._decode = _decoder(_byte_level())

    def __call__(self, ids: Sequence[int]) -> str:
        self.n_ids += len(ids)
        return self._decode(ids)


def test_a_running_segment_is_decoded_once():
    """A rule that was found costs no decoding in later prompts; one that was not costs the new part and an overlap."""
    meter = Meter()
    filler = _encode(_byte_level(), "ordnung der dateien " * 500)
    stated = _encode(_byte_level(), "leave data alone")
    tracker = VisibilityTracker([_rule("leave data alone"), _rule("never push", id="c1")], meter)
    prompt = filler + stated + filler
    tracker.observe(0, prompt)
    first = meter.n_ids
    assert first <= 4 * len(prompt)
    for _ in range(10):
        new = _encode(_byte_level(), "go on ")
        tracker.observe(0, prompt, new)
        prompt += new
    assert meter.n_ids - first <= 10 * (8 + len(new) + len("leave data alone"))
    tracker.observe(0, prompt, _encode(_byte_level(), "never push"))
    found = meter.n_ids
    entries = tracker.observe(0, prompt, _encode(_byte_level(), "never push and on"))
    assert meter.n_ids == found
    assert [entry.level for entry in entries] == [VisibilityLevel.VERBATIM] * 2


def test_no_rules_cost_nothing():
    """An episode without constraints decodes nothing."""
    meter = Meter()
    assert VisibilityTracker((), meter).observe(0, array("i", [1, 2, 3])) == ()
    assert visibility((), array("i"), meter) == ()
    assert meter.n_ids == 0


def test_a_prompt_that_shrinks_in_its_segment_is_a_breach():
    """Law 1: within a segment every prompt begins with the one before."""
    tracker = VisibilityTracker([_rule("leave data")], _decoder(_byte_level()))
    tracker.observe(0, array("i", [1, 2, 3]))
    with pytest.raises(LawBreach, match="segment 0: a prompt of 2 ids came after one of 3"):
        tracker.observe(0, array("i", [1, 2]))

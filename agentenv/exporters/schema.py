"""The columns of a row: name, Arrow type, meaning. The table users read is the table the writer uses."""

from __future__ import annotations

from typing import Any

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("run_id", "string", "id of the run; null if nobody named it"),
    ("episode_id", "string", "id of the episode; its rows share it"),
    ("attempt", "int32", "1-based attempt at the episode"),
    ("suite", "string", "registered name of the suite"),
    ("task_id", "string", "id of the task in the suite"),
    ("task_sha256", "string", "content hash of the task"),
    ("task_seed", "int64", "seed that made the task"),
    ("level", "int32", "difficulty"),
    ("group_id", "string", "episodes of one task that are compared with one another share it"),
    ("member", "int32", "0-based index in the group"),
    ("seed", "int64", "seed of the episode; seeds of its calls are derived from it"),
    ("segment", "int32", "0-based index of this training sequence in the episode"),
    ("n_segments", "int32", "training sequences of the episode, those without sampled tokens included"),
    ("segment_reason", "string", "why the segment began: first, compaction k0, what could not be proved"),
    ("purpose", "string", "act, or summary where the policy wrote a compaction's summary"),
    ("token_ids", "[int32]", "(T) prompt, completions and observations, as the engine saw them"),
    ("sampled_mask", "[uint8]", "(T) 1 where the behaviour policy chose the token"),
    ("train_mask", "[uint8]", "(T) 1 where the token may be trained; never outside sampled_mask"),
    ("logprobs", "[float]", "(T) natural log of the behaviour probability of token_ids[i]; null where not sampled"),
    (
        "logprob_spans",
        "[{start:int32,end:int32,distribution:string,evidence:string}]",
        "which distribution the log-probs describe (model, sampling, unknown), and how that is known",
    ),
    ("distribution", "string", "the one distribution of all spans; null if they differ or nothing is known"),
    (
        "weight_version_spans",
        "[{start:int32,end:int32,version:string}]",
        "which weights sampled which tokens; null version: unknown",
    ),
    ("min_weight_version", "int64", "oldest; null unless every span has a whole number"),
    ("max_weight_version", "int64", "newest; null unless every span has a whole number"),
    (
        "turns",
        (
            "[{turn:int32,purpose:string,start:int32,end:int32,finish:string,seed:int64,temperature:double,"
            "top_p:double,top_k:int32,min_p:double,repetition_penalty:double,presence_penalty:double,"
            "frequency_penalty:double,max_tokens:int32,reward:double,terminated:bool,truncated:bool}]"
        ),
        "replies in this row: where they are, how they were sampled, the step's reward (null if it had none)",
    ),
    ("temperature", "double", "the one temperature of all turns; null if they differ"),
    ("trainable", "bool", "whether train_mask has a 1"),
    ("untrained", "[string]", "why sampled tokens are not trained; empty if all are"),
    ("cautions", "[string]", "what a trainer must know: filtered_sampling, greedy"),
    (
        "breaches",
        "[{constraint_id:string,turn:int32,visible:bool,compaction_id:string,evidence:string}]",
        "constraints broken by turns of this row, and whether the policy could see them",
    ),
    ("end_mask", "[uint8]", "(T) 1 on the last sampled token of the episode: an advantage recursion is cut there"),
    ("bootstrap_mask", "[uint8]", "(T) 1 there if a critic bootstraps: truncated, not terminated, no fault"),
    ("final_prompt_ids", "[int32]", "last observation as tokens, in the row with the end; null in others"),
    ("row_weight", "double", "share of this row in the episode's loss; sums to 1; null if nothing is trained"),
    ("reward", "double", "of the whole episode; null unless scored"),
    (
        "reward_components",
        "[{turn:int32,name:string,value:double,source:string,status:string,detail:string}]",
        "parts of the reward; null turn: of the whole episode",
    ),
    ("terminated", "bool", "the task itself ended"),
    ("truncated", "bool", "something outside the task stopped it"),
    ("reason", "string", "the one stop reason"),
    ("budget", "string", "the budget that ran out; null if none did"),
    ("scoring", "string", "scored, not_required, not_run, failed, timed_out"),
    ("outcome", "string", "success, failure, unknown: what the task says"),
    ("fault", "string", "whose fault; none if nobody's"),
    (
        "budgets",
        "[{name:string,kind:string,owner:string,limit:double,spent:double}]",
        "every budget at the end; remaining is limit less spent",
    ),
    ("row_version", "int32", "version of these columns"),
)
"""(name, type, meaning). ``[x]`` is a list of ``x``, ``{a:x,b:y}`` a struct."""


def arrow_schema() -> Any:
    """Give the columns as a ``pyarrow.Schema``; the metadata of each field says under ``meaning`` what it means."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(name, _arrow_type(kind), metadata={"meaning": meaning}) for name, kind, meaning in COLUMNS]
    )


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    if kind.startswith("["):
        return pa.list_(_arrow_type(kind[1:-1]))
    if kind.startswith("{"):
        parts = [part.split(":") for part in kind[1:-1].split(",")]
        return pa.struct([pa.field(name, _arrow_type(inner)) for name, inner in parts])
    simple = {
        "bool": pa.bool_,
        "double": pa.float64,
        "float": pa.float32,
        "int32": pa.int32,
        "int64": pa.int64,
        "string": pa.string,
        "uint8": pa.uint8,
    }
    return simple[kind]()

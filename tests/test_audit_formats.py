"""`pods audit` reads what trainers, trackers, pandas and spreadsheets write, or says why not."""

import gzip
import json
import struct
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from data_files import write_rows

from pods import audit
from pods_lab.audit import values
from pods_lab.audit.console import console
from pods_lab.audit.formats import Log
from pods_lab.audit.json_logs import checkpoints, json_file, json_lines
from pods_lab.audit.mapping import NAMES
from pods_lab.audit.readers import Reading
from pods_lab.audit.readers import read as read_logs
from pods_lab.audit.several_runs import by_run
from pods_lab.audit.tables import table
from pods_lab.audit.trackers import leveldb_records, tensorboard, wandb_run

CURVE = {"step": [10, 20, 1000], "accuracy": [0.25, 0.5, 0.625], "seconds": [30.5, 61.0, 91.5]}


def read(path: Path, *about: str) -> Reading:
    return read_logs([path], NAMES["step"], about)


def numbers(log: Log) -> dict[str, list[float]]:
    """The columns of a log, as numbers."""
    return {
        key: [values.number(row[key]) for row in log.rows if key in row]
        for key in sorted(log.columns)
    }


# tables

COMMAS = "step,accuracy,seconds\n10,0.25,30.5\n20,0.5,61\n1000,0.625,91.5\n"
SEMICOLONS = "step;accuracy;seconds\n10;0,25;30,5\n20;0,5;61\n1.000;0,625;91,500\n"
TABLES = {
    "commas": COMMAS,
    "semicolons and decimal commas": SEMICOLONS,
    "semicolons and points": COMMAS.replace(",", ";"),
    "a mark for Excel": "sep=;\n" + SEMICOLONS,
    "tabs": COMMAS.replace(",", "\t"),
    "bars": COMMAS.replace(",", "|"),
    "blanks around names and cells": COMMAS.replace(",", " , "),
    "blanks and quotes": COMMAS.replace("step,accuracy", 'step, "accuracy"'),
    "comments": "# made by hand\n\n" + COMMAS.replace("20,", "# resumed\n20,"),
    "a header as numpy writes it": "# " + COMMAS,
    "numpy without a mark": "# " + COMMAS.replace(",", " "),
    "columns of blanks": COMMAS.replace(",", "   "),
    "a header that comes again": COMMAS.replace("20,", "step,accuracy,seconds\n20,"),
    "Windows": COMMAS.replace("\n", "\r\n"),
    "an index and empty cells at the end": ",step,accuracy,seconds\n0,10,0.25,30.5\n"
    "1,20,0.5,61,\n2,1000,0.625,91.5,,\n",
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES.keys())
def test_a_table_is_read_however_its_cells_are_parted(tmp_path, text, encoding):
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "a.csv").write_bytes(mark + text.encode(encoding))
    [log] = table(tmp_path / "a.csv")
    assert numbers(log) == CURVE and log.faults == []


def test_cells_mean_what_their_file_says(tmp_path):
    written = {
        "english.csv": 'step,tokens,accuracy\n"1,000","12,345,678",45 %\n',
        "german.csv": "step;tokens;accuracy\n1.000;12.345.678;0,45\n",
        "mixed.csv": "step;tokens;accuracy\n1,000;12,345,678;0.45\n",
        "french.csv": "step;tokens;accuracy\n1 000;12\u00a0345\u00a0678;0,45\n",
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
        [log] = table(tmp_path / name)
        assert numbers(log) == {"step": [1000], "tokens": [12345678], "accuracy": [0.45]}, name


def test_a_table_of_an_older_spreadsheet_and_one_with_long_cells_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("step;genauigkeit für gsm8k\n1;0,5\n".encode("latin-1"))
    assert [log.rows for log in table(path)] == [[{"step": "1", "genauigkeit für gsm8k": 0.5}]]
    completion = 'a "quoted" text\n# of two lines, ' + "x" * 200_000
    pd.DataFrame({"text": [completion], "step": [1], "accuracy": [0.5]}).to_csv(path, index=False)
    [log] = table(path)
    assert log.rows == [{"text": completion, "step": "1", "accuracy": "0.5"}]


@pytest.mark.parametrize("name", ["results of gsm8k", "step", "0.5"])
def test_a_table_of_one_column_has_one_column(tmp_path, name):
    (tmp_path / "a.csv").write_text(f"{name}\n7\n8\n")
    [log] = table(tmp_path / "a.csv")
    assert log.rows == [{name: "7"}, {name: "8"}]


# charts

CHART = """"Step","ppo-0 - eval/acc","ppo-0 - eval/acc__MIN","ppo-0 - eval/acc__MAX"
"10","0.25","0.25","0.25"
"20","NaN","NaN","NaN"
"""


def test_the_runs_of_a_chart_are_its_columns(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text(CHART)
    [log] = table(path)
    assert log.name == "ppo-0"
    assert log.rows == [{"Step": "10", "eval/acc": "0.25"}, {"Step": "20", "eval/acc": "NaN"}]
    path.write_text("Step,ppo-0 - eval/acc,b - 2 - eval/acc\n10,0.25,0.125\n20,0.5,\n")
    runs = {log.name: log.rows for log in read(path).logs}
    assert [*runs] == ["ppo-0", "b - 2"]
    assert runs["b - 2"] == [{"Step": "10", "eval/acc": "0.125"}]


def test_a_chart_of_groups_is_refused_with_the_reason(tmp_path):
    ends = [
        f"method: {method} - eval/acc{end}" for method in "ab" for end in ("", "__MIN", "__MAX")
    ]
    header = ",".join(["Step", *ends])
    (tmp_path / "chart.csv").write_text(f"{header}\n10,0.5,0.5,0.5,0.25,0.125,0.375\n")
    with pytest.raises(ValueError, match=r"method: b is a mean of several runs or steps .* export"):
        read(tmp_path)
    (tmp_path / "chart.csv").write_text(f"{header}\n10,0.5,0.5,0.5,0.25,0.25,0.25\n")
    assert [log.name for log in read(tmp_path).logs] == ["method: a", "method: b"]


def test_scalars_from_the_page_of_tensorboard_are_named_by_their_files(tmp_path):
    for run in ("grpo-0", "pods-0"):
        for tag, value in (("eval_accuracy", 0.5), ("loss", 2)):
            path = tmp_path / f"run-{run}-tag-{tag}.csv"
            path.write_text(f"Wall time,Step,Value\n1760000000.5,10,{value}\n")
    found = read(tmp_path)
    assert [log.name for log in found.logs] == ["grpo-0", "pods-0"]
    assert numbers(found.logs[0])["Step"] == [10, 10] and "eval_accuracy" in found.logs[0].columns


# JSON

FRAME = pd.DataFrame(CURVE)
FRAMES = {
    **{orient: FRAME.to_json(orient=orient) for orient in
       ("columns", "index", "split", "records", "table")},
    "lines": FRAME.to_json(orient="records", lines=True),
    "lists": json.dumps(FRAME.to_dict("list")),
    "printed": json.dumps(FRAME.to_dict("records"), indent=1),
    "a key with rows": json.dumps({"about": {"seed": 1}, "history": FRAME.to_dict("records")}),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["json", "jsonl", "json.gz", "jsonl.gz"])
@pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_is_read_however_pandas_writes_it(tmp_path, text, ending):
    packed = gzip.compress(text.encode()) if ending.endswith("gz") else text.encode()
    (tmp_path / f"a.{ending}").write_bytes(packed)
    [log] = read(tmp_path).logs
    assert {key: numbers(log)[key] for key in CURVE} == CURVE
    assert (log.name, log.faults) == ("a", [])


@pytest.mark.parametrize("orient", ["columns", "index", "split"])
def test_an_index_that_is_the_step_is_a_column(tmp_path, orient):
    (tmp_path / "a.json").write_text(FRAME.set_index("step").to_json(orient=orient))
    [log] = json_file(tmp_path / "a.json")
    assert numbers(log)["index"] == CURVE["step"] and numbers(log)["accuracy"] == CURVE["accuracy"]
    (tmp_path / "a.json").write_text(FRAME.drop(columns="step").to_json(orient=orient))
    [log] = json_file(tmp_path / "a.json")
    assert log.columns == {"accuracy", "seconds"}  # an index that counts rows is none


def test_an_object_of_several_lists_has_a_run_in_each_or_is_refused(tmp_path):
    rows = [{"step": 1, "accuracy": 0.5}]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"grpo-seed0": rows, "pods-seed0": rows * 2}))
    assert [(log.name, len(log.rows)) for log in read(path).logs] == [
        ("grpo-seed0", 1), ("pods-seed0", 2)]  # fmt: skip
    path.write_text(json.dumps({"train": rows, "eval": rows}))
    with pytest.raises(ValueError, match=r"several lists of one run \(train, eval\)"):
        read(path)


def test_nested_objects_are_columns(tmp_path):
    lines = [{"step": 1, "val": {"gsm8k": {"acc": 0.5}}, "lr": 0.1}, {"step": 2, "data": {"x": 3}}]
    [log] = json_lines(write_rows(tmp_path / "a.jsonl", lines))
    assert log.rows == [{"step": 1, "val/gsm8k/acc": 0.5, "lr": 0.1}, {"step": 2, "x": 3}]


def test_checkpoints_are_in_the_order_of_their_steps():
    blocks = {"checkpoint-1000": {"gsm8k": {"acc": [0.5, 1.0], "text": ["a"]}},
              "checkpoint-200": {"gsm8k": {"acc": [0.25]}, "n": 3}}  # fmt: skip
    rows = [{"step": 200, "gsm8k/acc": 0.25, "n": 3}, {"step": 1000, "gsm8k/acc": 0.75}]
    assert checkpoints(blocks) == rows


def test_damaged_lines_are_counted_and_the_others_are_read(tmp_path):
    lines = [
        b'{"step": 1, "accuracy": 0.5}',
        b'{"step": 2, "acc',
        b"\xff\xfe",
        b"[1]",
        b'{"step": 3}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    [log] = read(tmp_path).logs
    assert [row["step"] for row in log.rows] == [1, 3]
    assert log.faults == ["3 lines are cut off or no JSON objects, and left out"]


# trackers


def framed(*records: bytes) -> bytes:
    """A `.wandb` file as LevelDB writes logs: in parts of a block, whose rest is zeros."""
    data = b":W&B\0\0\0"
    for record in records:
        begin = 0
        while begin == 0 or begin < len(record):
            left = 32768 - len(data) % 32768 - 7
            if left < 0:
                data += bytes(left + 7)
                continue
            part = record[begin : begin + left]
            is_last = begin + len(part) == len(record)
            kind = (1 if is_last else 2) if begin == 0 else (4 if is_last else 3)
            data += struct.pack("<IHB", 0, len(part), kind) + part
            begin += len(part)
    return data


@pytest.mark.parametrize("sizes", [(51_200,), (9, 100_000, 9), (32_747, 20), (32_754, 20), (1, 2)])
def test_a_record_is_whole_however_many_blocks_it_takes(sizes):
    records = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    faults: list[str] = []
    assert list(leveldb_records(framed(*records), faults)) == records and faults == []
    assert list(leveldb_records(framed(*records)[:-1], faults)) == records[:-1]
    assert faults == ["the file is cut off, its last record is left out"]


def wandb_file(folder: Path, rows: list[dict], run_id: str = "abc", **config) -> None:
    """An offline run as W&B writes it; `step` is what the trainer gave, or else a count."""
    from wandb.proto.wandb_internal_pb2 import Record

    run = Record()
    run.run.run_id, run.run.display_name = run_id, f"run-{run_id}"
    for key, value in config.items():
        run.run.config.update.add(key=key, value_json=json.dumps(value))
    records = [run]
    for count, row in enumerate(rows):
        record = Record()
        record.history.step.num = row.get("_step", count)
        for key, value in row.items():
            record.history.item.add(key=key, value_json=json.dumps(value))
        records.append(record)
    folder.mkdir(parents=True)
    data = framed(*(record.SerializeToString() for record in records))
    (folder / f"run-{run_id}.wandb").write_bytes(data)


def test_the_parts_of_a_resumed_run_of_wandb_follow_each_other(tmp_path):
    parts = [[0.1, 0.2, 0.3], [0.4, 0.5], [0.6]]
    for number, scores in enumerate(parts):  # folders of one second have a number
        rows = [{"acc": score, "_runtime": 10.0 * at + 5} for at, score in enumerate(scores)]
        wandb_file(tmp_path / f"offline-run-20260101_000000-abc{f'-{number}' * (number > 0)}", rows)
    found = read(tmp_path)
    [log] = found.logs
    assert numbers(log) == {
        "_step": [0, 1, 2, 3, 4, 5],
        "acc": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "_runtime": [5, 15, 25, 30, 40, 45],
    }
    assert found.notes == [
        "resumed, and W&B's _runtime and _step go on from the part before: run-abc"
    ]


def test_steps_that_a_trainer_gave_and_clocks_that_go_on_stay_as_they_are(tmp_path):
    for number, steps in enumerate([[10, 20, 30], [20, 30, 40]]):
        rows = [{"_step": step, "acc": 0.5, "_runtime": step + 60.0 * number} for step in steps]
        wandb_file(tmp_path / f"offline-run-2026010{number + 1}_000000-abc", rows)
    found = read(tmp_path)
    assert numbers(found.logs[0])["_step"] == [10, 20, 30, 20, 30, 40] and found.notes == []
    wandb_file(tmp_path / "offline-run-20260101_000000-other", [{"acc": 0.5}], "other")
    assert [log.name for log in read(tmp_path).logs] == ["run-abc", "run-other"]


def test_a_row_of_a_resumed_run_without_a_time_keeps_the_other_rows(tmp_path):
    for number, times in enumerate([[5.0, 15.0], [None, 5.0]]):
        rows = [{"_step": 2 * number + at, "acc": 0.5, "_runtime": time}
                for at, time in enumerate(times)]  # fmt: skip
        write_rows(tmp_path / ("a-seed0.jsonl" if number else "a-seed0.jsonl.1"), rows)
    found = read(tmp_path)
    assert found.left_out == []
    assert [row["_runtime"] for row in found.logs[0].rows] == [5.0, 15.0, None, 20.0]


def test_thousands_of_runs_by_unusual_names_are_split_in_one_go(tmp_path):
    """All rows were looked through again for each run, which took 37 s here and now takes 0.1 s."""
    rows = [{"Approach": "ab"[run % 2], "Init #": run // 2, "step": step, "acc": 0.5}
            for step in range(5) for run in range(3000)]  # fmt: skip
    start = time.process_time()
    runs = list(by_run(Log("", tmp_path / "a.csv", rows)))
    assert time.process_time() - start < 10
    assert [run.name for run in runs[:2]] == ["a 0", "b 0"] and len(runs) == 3000
    assert runs[3].config == {"method": "b", "seed": "1"} and len(runs[3].rows) == 5


def test_nested_values_and_a_damaged_record_of_wandb(tmp_path):
    wandb_file(
        tmp_path / "run-1", [{"eval": {"gsm8k": {"acc": 0.5}}}, {"x": 1}], trainer={"seed": 3}
    )
    [path] = tmp_path.glob("*/*.wandb")
    path.write_bytes(
        path.read_bytes().replace(b'"x"', b'"x"') + struct.pack("<IHB", 0, 3, 1) + b"xyz"
    )
    [log] = read(tmp_path).logs
    assert log.rows[0] == {"_step": 0, "eval/gsm8k/acc": 0.5} and log.config["trainer.seed"] == 3
    assert log.faults == ["record 4 is damaged, and what follows is left out"]


def test_the_machine_of_a_run_of_wandb_is_its_gpu_or_else_its_host(tmp_path):
    from wandb.proto.wandb_internal_pb2 import Record

    path = tmp_path / "run-abc.wandb"
    for gpu, machine in (("", "box"), ("H200", "H200")):
        run, environment = Record(), Record()
        run.run.run_id, run.run.host = "abc", "box"
        environment.environment.os, environment.environment.gpu_type = "Linux", gpu
        path.write_bytes(framed(run.SerializeToString(), environment.SerializeToString()))
        assert [log.machine for log in wandb_run(path)] == [machine]


def events(path: Path, *tensors) -> None:
    """An event file: each tensor is a scalar of step 10 that is named by its place."""
    from tensorboardX.proto.event_pb2 import Event

    data = b""
    for place, tensor in enumerate(tensors):
        event = Event(step=10, wall_time=1.5)
        event.summary.value.add(tag=str(place), tensor=tensor)
        record = event.SerializeToString()
        data += struct.pack("<QI", len(record), 0) + record + bytes(4)
    path.write_bytes(data)


def test_scalars_of_tensorflow_2_are_read_and_other_tensors_are_not(tmp_path):
    from tensorboardX.proto.tensor_pb2 import TensorProto as Tensor

    halves = [np.array(0.375, "<f2").tobytes(), np.array(0.375, "<f4").tobytes()[2:]]
    scalars = [
        Tensor(dtype=1, tensor_content=np.array(0.375, "<f4").tobytes()),
        Tensor(dtype=2, tensor_content=np.array(0.375, "<f8").tobytes()),
        Tensor(dtype=19, tensor_content=halves[0]),
        Tensor(dtype=14, tensor_content=halves[1]),
        Tensor(dtype=1, float_val=[0.375]),
        Tensor(dtype=2, double_val=[0.375]),
        Tensor(dtype=19, half_val=[int.from_bytes(halves[0], "little")]),
        Tensor(dtype=14, half_val=[int.from_bytes(halves[1], "little")]),
    ]
    others = [
        Tensor(dtype=7, string_val=[b"a text"]),
        Tensor(dtype=1, tensor_content=np.zeros(3, "<f4").tobytes()),
        Tensor(dtype=1, float_val=[1, 2]),
        Tensor(dtype=8, tensor_content=bytes(8)),
    ]
    events(tmp_path / "events.out.tfevents.1", *scalars, *others)
    [log] = tensorboard(tmp_path / "events.out.tfevents.1")
    assert [row[str(place)] for place, row in enumerate(log.rows)] == [0.375] * len(scalars)
    assert {(row["step"], row["wall_time"]) for row in log.rows} == {(10, 1.5)}
    events(tmp_path / "events.out.tfevents.1", Tensor(dtype=9, tensor_content=bytes([7] + [0] * 7)))
    assert [log.rows[0]["0"] for log in tensorboard(tmp_path / "events.out.tfevents.1")] == [7]


# printed lines


def test_names_in_printed_lines_may_have_blanks_dashes_and_colons(tmp_path):
    lines = [
        "(TaskRunner pid=9) step:0 - val-core/Some Org/AIME 2024/acc/mean@1:0.25",
        "step:10 - val/a - b/acc:0.5 - val/org:set - x/acc:np.float64(0.75) - loss:-1.5e-03\x1b[0m",
        "step:20 - note - tokens:12,345 - done:True - kl:nan",
        "SUCCESS Step 30 | Time: 2.50s | Reward: 0.25 | Throughput: 1,234 tokens/s",
        "step: 40 is no line of verl",
    ]
    (tmp_path / "a.log").write_text("\n".join(lines))
    [log] = console(tmp_path / "a.log")
    assert log.rows[0] == {"step": 0, "val-core/Some Org/AIME 2024/acc/mean@1": 0.25}
    assert log.rows[1] == {
        "step": 10, "val/a - b/acc": 0.5, "val/org:set - x/acc": 0.75, "loss": -0.0015}  # fmt: skip
    assert log.rows[2]["note - tokens"] == 12345 and np.isnan(log.rows[2]["kl"])
    assert log.rows[3] == {"step": 30, "Time": 2.5, "Reward": 0.25, "Throughput": 1234}
    assert len(log.rows) == 4


# what files of several runs, and several files of a run, say


def test_parts_of_a_log_that_were_set_aside_are_one_log(tmp_path):
    def line(step: int) -> str:
        return f"step:{step} - val/test_score/acc:0.5\n"

    for name, step in {"a.log.10": 1, "a.log.2.gz": 2, "a.log.1": 3, "a.log": 4}.items():
        text = line(step).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    for name, step in {"b.jsonl-20260131": 1, "b.jsonl-20260201.gz": 2, "b.jsonl": 3}.items():
        text = json.dumps({"step": step, "accuracy": 0.5}).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    found = read(tmp_path)
    steps = {log.name: [row["step"] for row in log.rows] for log in found.logs}
    assert steps == {"a": [1, 2, 3, 4], "b": [1, 2, 3]} and found.left_out == found.notes == []


FINAL = "Method,seed,accuracy\ngrpo,0,0.25\ngrpo,1,0.5\npods,0,0.375\n"


def test_a_table_with_a_row_for_each_run_has_final_scores(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(FINAL)
    found = read(path)
    assert [(log.name, log.config["method"], log.config["seed"]) for log in found.logs] == [
        ("grpo 0", "grpo", "0"), ("grpo 1", "grpo", "1"), ("pods 0", "pods", "0")]  # fmt: skip
    assert [log.rows[0]["accuracy"] for log in found.logs] == ["0.25", "0.5", "0.375"]
    note = f"{path}: no step column: each of its 3 rows is the final score of a run"
    assert (found.notes, {log.rows[0]["step"] for log in found.logs}) == ([note], {1})

    path.write_text(FINAL.replace("Method,seed", "Trainer,number"))
    with pytest.raises(ValueError, match="no step column among Trainer, accuracy, number"):
        read(path)
    assert [log.name for log in read(path, "Trainer", "number").logs] == [
        "grpo 0",
        "grpo 1",
        "pods 0",
    ]
    write_rows(tmp_path / "b.jsonl", [{"step": 1, "accuracy": 0.5}])
    assert [log.name for log in read(tmp_path, "Trainer", "number").logs] == ["b"]


def test_final_scores_under_headers_of_ones_own_are_judged(tmp_path):
    """Two methods, three seeds each, percent: no header is one that a trainer writes."""
    rows = [f"{name},{seed},{30 + seed + 5 * (name == 'mine')}"
            for name in ("ppo", "mine") for seed in range(3)]  # fmt: skip
    path = tmp_path / "results.csv"
    path.write_text("\n".join(["Algorithm,rng_seed,GSM8K acc (%)", *rows]))
    study = audit(path)
    assert (len(study.complete), study.seeded, study.missing) == (6, True, [])
    assert study.evaluations.groupby("series").accuracy.mean().round(9).to_dict() == {
        "mine": 0.36, "ppo": 0.31}  # fmt: skip
    assert [log.rows[0]["step"] for log in read_logs([path], None).logs] == [1] * 6  # for --init


@pytest.mark.parametrize("more", ["grpo,0,0.75\n", "grpo,1,0.75\npods,0,0\n"])
def test_several_rows_of_one_run_are_no_final_scores(tmp_path, more):
    (tmp_path / "answers.csv").write_text(FINAL + more)
    with pytest.raises(ValueError, match="no step column among Method, accuracy, seed"):
        read(tmp_path)


def test_rows_of_several_runs_are_told_apart_by_all_that_tells_them(tmp_path):
    rows = [{"method": method, "run": run, "step": step}
            for step in (1, 2) for method in "ab" for run in (0, 1)]  # fmt: skip
    logs = list(by_run(Log("", tmp_path / "a.jsonl", rows)))
    assert [(log.name, len(log.rows)) for log in logs] == [
        ("0 a", 2), ("1 a", 2), ("0 b", 2), ("1 b", 2)]  # fmt: skip
    rows = [{"seed": seed, "step": step} for step in (1, 2) for seed in (3, 4)]
    assert [log.ending for log in by_run(Log("", tmp_path / "a.jsonl", rows))] == [
        "-seed3",
        "-seed4",
    ]
    told = [{"method": "a", "seed": 0}, {"step": 1}, {"step": 2}]
    [log] = by_run(Log("", tmp_path / "a.jsonl", told))
    assert log.rows == told and log.config == {"method": "a", "seed": "0"}


def test_rows_that_may_be_of_any_run_are_left_out_and_counted_once(tmp_path):
    rows = [{"seed": 0, "step": 1}, {"seed": 1, "step": 1}, {"step": 2}, {"seed": None, "step": 3}]
    path = write_rows(tmp_path / "a.jsonl", rows)
    found = read(path)
    assert [(log.name, len(log.rows)) for log in found.logs] == [("a-seed0", 1), ("a-seed1", 1)]
    assert found.left_out == [f"{path}: 2 rows have no seed, so no run, and are left out"]


def test_equal_names_of_runs_in_two_tables_are_two_runs(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("method,seed,step,acc\nx,0,1,0.5\ny,0,1,0.25\n")
    assert [log.name for log in read(tmp_path).logs] == ["x 0", "y 0", "x 0 #2", "y 0 #2"]


LINES = {
    "EasyR1": ("experiment_log.jsonl", {"step": 10, "val": {"accuracy_reward": 0.5},
                                        "perf": {"time_per_step": 30.0}}),
    "LlamaFactory": ("trainer_log.jsonl", {"current_steps": 10, "total_steps": 99, "reward": 0.5,
                                           "elapsed_time": "0:05:00"}),
    "ms-swift": ("v0-2026061{}-211241/logging.jsonl", {"global_step/max_steps": "10/99",
                                                        "reward": 0.5, "elapsed_time": "5m 0s"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "line"), LINES.values(), ids=LINES.keys())
def test_logs_of_more_trainers_are_audited_as_they_are(tmp_path, name, line):
    """The last line of ms-swift has another step column, and no score."""
    for run in ("grpo-seed0", "grpo-seed1", "pods-seed0"):
        summary = {"global_step": 99, "best_metric": None, "log_history": []}
        lines = [line, summary] if "max_steps" in str(line) else [line]
        write_rows(tmp_path / run / name.format(run[-1]), lines)
    study = audit(tmp_path)
    points = study.evaluations
    assert [*points.run] == ["grpo-seed0", "grpo-seed1", "pods-seed0"] and study.missing == []
    assert {*points.step} == {10} and {*points.accuracy} == {0.5}
    assert {*points.train_seconds} == {300.0} and [*points.seed] == [0, 1, 0]

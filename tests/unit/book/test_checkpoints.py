import errno
import json
import math
import os
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load_file

from rollbook.book import tensors as tensor_file
from rollbook.book.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint
from rollbook.errors import CheckpointNotFound, CorruptFile, UsageError

Adam = namedtuple("Adam", ["count", "mu"])


def save(run_folder, step, tree=None, *, extra=None, keep=None):
    tree = {"weight": np.arange(6.0)} if tree is None else tree
    return save_checkpoint(
        run_folder, step, tree, extra=extra, attempt=1, rows=10, time=5.0, next_step=step + 1, keep=keep
    )


def steps(run_folder):
    return [checkpoint.step for checkpoint in list_checkpoints(run_folder)]


def hidden(run_folder):
    return [name for name in os.listdir(run_folder / "checkpoints") if name.startswith(".")]


def flip_a_byte(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_what_was_saved_is_loaded(tmp_path):
    save(tmp_path, 1000, {"actor": [np.ones((2, 3), np.float32), None], "step": 7}, extra={"epoch": 3})

    loaded = load_checkpoint(tmp_path)

    assert loaded.step == 1000
    assert loaded.extra == {"epoch": 3}
    assert loaded.tensors["step"] == 7
    assert loaded.tensors["actor"][1] is None
    np.testing.assert_array_equal(loaded.tensors["actor"][0], np.ones((2, 3), np.float32), strict=True)


def test_a_checkpoint_says_where_it_lies_and_how_large_it_is(tmp_path):
    checkpoint = save(tmp_path, 40)

    folder = tmp_path / "checkpoints" / "40"
    assert checkpoint.path == str(folder)
    assert checkpoint.bytes == sum(file.stat().st_size for file in folder.iterdir())
    assert (checkpoint.attempt, checkpoint.rows, checkpoint.time, checkpoint.next_step) == (1, 10, 5.0, 41)
    assert list_checkpoints(tmp_path) == [checkpoint]


def test_the_folder_holds_a_json_manifest_and_a_safetensors_file_that_others_can_read(tmp_path):
    save(tmp_path, 1, {"critic": {"bias": np.arange(3.0)}, "n": np.int16(4), "none": np.empty((0, 2))})

    folder = tmp_path / "checkpoints" / "1"
    arrays = load_file(folder / "tensors.safetensors")
    assert sorted(os.listdir(folder)) == ["manifest.json", "tensors.safetensors"]
    assert json.loads((folder / "manifest.json").read_text())["step"] == 1
    assert {key.partition(":")[2]: array.shape for key, array in arrays.items()} == {
        "critic.bias": (3,),
        "n": (),
        "none": (0, 2),
    }


def test_the_newest_is_loaded_when_no_step_is_named(tmp_path):
    for step in (5, 100, 20):
        save(tmp_path, step)

    assert load_checkpoint(tmp_path).step == 100
    assert load_checkpoint(tmp_path, 20).step == 20
    assert steps(tmp_path) == [5, 20, 100]


def test_a_missing_checkpoint_is_named_with_those_that_exist(tmp_path):
    with pytest.raises(CheckpointNotFound, match="no checkpoint"):
        load_checkpoint(tmp_path)
    save(tmp_path, 5)
    save(tmp_path, 7)

    with pytest.raises(CheckpointNotFound, match=r"no checkpoint of step 6[\s\S]*5, 7"):
        load_checkpoint(tmp_path, 6)


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, True, np.float32(2)])
def test_a_step_that_is_no_whole_number_from_0_up_is_refused(tmp_path, step):
    with pytest.raises(UsageError, match="a step must be"):
        save_checkpoint(tmp_path, step, {}, extra=None, attempt=0, rows=0, time=0.0, next_step=0, keep=None)

    assert not (tmp_path / "checkpoints").exists()


def test_a_step_of_numpy_is_a_step(tmp_path):
    assert save(tmp_path, np.int64(12)).step == 12


def test_nan_and_infinities_in_extra_survive(tmp_path):
    save(tmp_path, 1, extra={"best": -math.inf, "loss": math.nan, "count": np.int32(3), "text": "\ud800"})

    extra = load_checkpoint(tmp_path).extra
    assert extra["best"] == -math.inf
    assert math.isnan(extra["loss"])
    assert extra["count"] == 3
    assert extra["text"] == "\ud800"


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"a": {"policy": object()}}, r"extra\['a'\]\['policy'\] is of type object"),
        ({"a": [1, {2}]}, r"extra\['a'\]\[1\] is of type set"),
        ({"a": np.ones(3)}, r"extra\['a'\] is of type ndarray"),
        ({3: "x"}, "extra has the key 3 of type int"),
    ],
)
def test_an_extra_that_json_cannot_hold_is_refused_by_name(tmp_path, extra, named):
    with pytest.raises(UsageError, match=named):
        save(tmp_path, 1, extra=extra)

    assert steps(tmp_path) == []


def test_an_extra_that_holds_itself_is_refused(tmp_path):
    extra: dict = {}
    extra["self"] = extra

    with pytest.raises(UsageError, match="nested"):
        save(tmp_path, 1, extra=extra)


def test_keep_removes_the_smallest_steps(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=2)

    assert steps(tmp_path) == [3, 4]
    assert hidden(tmp_path) == []


def test_keep_never_removes_the_checkpoint_just_saved(tmp_path):
    for step in (100, 200, 300):
        save(tmp_path, step)

    save(tmp_path, 50, keep=2)

    assert steps(tmp_path) == [50, 300]


@pytest.mark.parametrize("keep", [0, -1, 1.5, True])
def test_keep_must_leave_at_least_one(tmp_path, keep):
    with pytest.raises(UsageError, match="keep must be"):
        save(tmp_path, 1, keep=keep)


def test_a_step_saved_again_is_replaced(tmp_path):
    save(tmp_path, 1, {"x": np.zeros(3)})
    save(tmp_path, 1, {"x": np.ones(4)})

    assert load_checkpoint(tmp_path, 1).tensors["x"].tolist() == [1, 1, 1, 1]
    assert hidden(tmp_path) == []


def test_a_reader_always_finds_a_checkpoint_while_it_is_replaced(tmp_path):
    save(tmp_path, 1, {"x": np.zeros(1000)})
    done = threading.Event()

    def replace():
        for value in range(60):
            save(tmp_path, 1, {"x": np.full(1000, value)})
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    seen = 0
    while not done.is_set():
        assert len(set(load_checkpoint(tmp_path, 1).tensors["x"].tolist())) == 1
        seen += 1
    writer.join()

    assert seen > 0


def test_a_checkpoint_half_written_when_its_process_was_killed_is_neither_listed_nor_left(tmp_path):
    save(tmp_path, 1)
    leftover = tmp_path / "checkpoints" / ".2.0badcafe"
    leftover.mkdir()
    (leftover / "tensors.safetensors").write_bytes(b"half")

    assert load_checkpoint(tmp_path).step == 1
    save(tmp_path, 3)
    assert steps(tmp_path) == [1, 3]
    assert hidden(tmp_path) == []


def test_a_kill_between_the_renames_of_a_replacement_loses_nothing(tmp_path):
    save(tmp_path, 1, {"x": 5})
    folder = tmp_path / "checkpoints"
    (folder / "1").rename(folder / ".1.0badcafe.old")

    assert load_checkpoint(tmp_path, 1).tensors == {"x": 5}
    assert steps(tmp_path) == [1]
    save(tmp_path, 2)
    assert (folder / "1").is_dir()
    assert hidden(tmp_path) == []


def test_two_threads_that_save_at_once_do_not_remove_each_others_work(tmp_path):
    def save_many(start):
        for step in range(start, start + 40, 2):
            save(tmp_path, step)

    threads = [threading.Thread(target=save_many, args=(start,)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert steps(tmp_path) == list(range(40))


@pytest.mark.parametrize("at", [-1, 0, 12])
def test_a_flipped_byte_of_the_tensors_is_found_and_the_file_named(tmp_path, at):
    save(tmp_path, 1)
    flip_a_byte(tmp_path / "checkpoints" / "1" / "tensors.safetensors", at)

    with pytest.raises(CorruptFile, match=r"1/tensors\.safetensors is damaged"):
        load_checkpoint(tmp_path, 1)


def test_a_flipped_byte_of_the_manifest_is_found_and_the_file_named(tmp_path):
    save(tmp_path, 1, extra={"epoch": 4})
    manifest = tmp_path / "checkpoints" / "1" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"epoch": 4', '"epoch": 5'))

    with pytest.raises(CorruptFile, match=r"1/manifest\.json is damaged"):
        load_checkpoint(tmp_path, 1)
    assert steps(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 5000, '{"crc32": 0}', "\x00"])
def test_a_manifest_that_is_none_is_skipped_by_the_list_and_named_by_the_load(tmp_path, text):
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "checkpoints" / "2" / "manifest.json").write_text(text)

    assert steps(tmp_path) == [1]
    with pytest.raises(CorruptFile, match=r"2/manifest\.json"):
        load_checkpoint(tmp_path, 2)


@pytest.mark.parametrize("name", ["manifest.json", "tensors.safetensors"])
def test_a_missing_file_is_damage(tmp_path, name):
    save(tmp_path, 1)
    (tmp_path / "checkpoints" / "1" / name).unlink()

    with pytest.raises(CorruptFile, match=f"{name} is missing"):
        load_checkpoint(tmp_path, 1)


def test_a_damaged_newest_gives_the_one_before_it_with_a_warning(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    for step in (2, 3):
        flip_a_byte(tmp_path / "checkpoints" / str(step) / "tensors.safetensors")

    with pytest.warns(UserWarning, match=r"tensors\.safetensors is damaged") as caught:
        loaded = load_checkpoint(tmp_path)

    assert loaded.step == 1
    assert len(caught) == 2


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_when_all_are_damaged_the_newest_is_named(tmp_path):
    for step in (1, 2):
        save(tmp_path, step)
        flip_a_byte(tmp_path / "checkpoints" / str(step) / "tensors.safetensors")

    with pytest.raises(CorruptFile, match="checkpoints/2/tensors"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("step", [1, 2])
def test_a_full_disk_leaves_the_checkpoints_as_they_were(tmp_path, monkeypatch, step):
    save(tmp_path, 1, {"x": 1})

    def full(path, tensors):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_file, "write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, step, {"x": 2}, keep=1)

    assert hidden(tmp_path) == []
    assert steps(tmp_path) == [1]
    assert load_checkpoint(tmp_path).tensors == {"x": 1}


def test_a_real_full_device_is_an_os_error():
    with pytest.raises(OSError, match="No space left"):
        tensor_file.write_tensors("/dev/full", {"x": tensor_file.Tensor("F64", np.ones(10_000))})


def test_bfloat16_is_loaded_as_float32_where_ml_dtypes_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_file, "ml_dtypes", lambda: None)
    bits = np.array([[0x3F80, 0xC000], [0x7F80, 0x0001]], np.uint16)
    crc = tensor_file.write_tensors(
        tmp_path / "t", {"x": tensor_file.Tensor("BF16", bits), "y": tensor_file.Tensor("BOOL", np.array(True))}
    )

    arrays = tensor_file.read_tensors(tmp_path / "t", crc)

    assert arrays["x"].dtype == np.float32
    assert arrays["x"].tolist() == [[1.0, -2.0], [math.inf, 2.0**-133]]
    assert arrays["y"].tolist() is True


def test_like_gives_the_containers_and_types_back(tmp_path):
    tree = OrderedDict(adam=Adam(np.int32(3), {0: np.ones(2)}), key=(1, 2.5))
    save(tmp_path, 1, tree)

    like = OrderedDict(adam=Adam(np.int32(0), {0: np.zeros(2)}), key=(0, 0.0))
    loaded = load_checkpoint(tmp_path, like=like).tensors

    assert isinstance(loaded, OrderedDict)
    assert isinstance(loaded["adam"], Adam)
    assert loaded["adam"].count == 3
    assert loaded["adam"].mu[0].tolist() == [1, 1]
    assert loaded["key"] == (1, 2.5)


def test_a_like_of_another_shape_is_refused_and_is_no_damage(tmp_path):
    save(tmp_path, 1, {"actor": {"weight": np.ones((2, 3))}})

    with pytest.raises(UsageError, match=r"actor\.weight is of shape \(2, 3\) in the checkpoint and \(3, 2\) in like="):
        load_checkpoint(tmp_path, like={"actor": {"weight": np.ones((3, 2))}})


def test_loaded_arrays_can_be_changed_in_place(tmp_path):
    save(tmp_path, 1, {"a": np.zeros(3), "b": np.zeros(2, np.complex128)})

    loaded = load_checkpoint(tmp_path).tensors

    loaded["a"][0] = loaded["b"][0] = 1
    assert load_checkpoint(tmp_path).tensors["a"][0] == 0


def test_a_dataclass_is_a_dict_of_its_fields_without_like(tmp_path):
    @dataclass(frozen=True)
    class Normaliser:
        mean: np.ndarray
        count: int

    save(tmp_path, 1, Normaliser(np.ones(2), 4))

    assert load_checkpoint(tmp_path).tensors["count"] == 4
    assert load_checkpoint(tmp_path, like=Normaliser(np.zeros(2), 0)).tensors.count == 4


def test_a_manifest_from_elsewhere_cannot_name_an_object_type(tmp_path):
    save(tmp_path, 1, {"a": np.array(["text"])})
    from rollbook.book.checkpoints import _manifest_crc

    path = tmp_path / "checkpoints" / "1" / "manifest.json"
    manifest = json.loads(path.read_text().replace("<U4", "|O8"))
    path.write_text(json.dumps(manifest | {"crc32": _manifest_crc(manifest)}))

    with pytest.raises(CorruptFile, match="does not describe a tree"):
        load_checkpoint(tmp_path, 1)

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from rollbook.book import media, videos
from rollbook.book.media import list_media, save_figure, save_file, save_text, save_video
from rollbook.errors import DataError, InvalidName, UsageError

HOSTILE = [
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "a\nb",
    "n" * 300,
    "🤖/🦾" * 60,
    ".hidden",
    "a\\..\\b",
    "~",
    "name.txt",
    "\0",
]


@pytest.fixture
def no_ffmpeg(monkeypatch):
    monkeypatch.setattr(videos, "find_ffmpeg", lambda: None)


@pytest.fixture
def fake_ffmpeg(monkeypatch, tmp_path):
    """A program in ffmpeg's place: writes its input, and its arguments beside it."""

    def install(script):
        program = tmp_path / "ffmpeg"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(videos, "find_ffmpeg", lambda: str(program))
        return program

    return install


def picture(path):
    with Image.open(path) as image:
        return np.asarray(image)


def frames_of(path):
    with Image.open(path) as image:
        return image.n_frames, image.size


def leftovers(folder):
    return list(folder.rglob(".*"))


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((4, 5), np.uint8), (4, 5)),
        (np.zeros((4, 5, 1), np.uint8), (4, 5)),
        (np.zeros((4, 5, 3), np.float32), (4, 5, 3)),
        (np.zeros((4, 5, 4), np.int64), (4, 5, 4)),
        (np.zeros((3, 4, 5)), (4, 5, 3)),
        (np.zeros((1, 4, 5)), (4, 5)),
        (np.zeros((3, 4, 3)), (3, 4, 3)),
        (np.zeros((4, 5), bool), (4, 5)),
    ],
    ids=lambda value: f"{value.dtype}-{value.shape}" if hasattr(value, "dtype") else "",
)
def test_an_array_becomes_a_png_of_its_shape(tmp_path, array, shape):
    path = save_figure(tmp_path, "critic", array, 7)

    assert path == tmp_path / "media" / "critic" / "7.png"
    assert picture(path).shape == shape


@pytest.mark.parametrize(
    "array",
    [np.array([[0, 255]], np.uint8), np.array([[0.0, 1.0004]]), np.array([[False, True]]), np.array([[0, 255]])],
)
def test_black_is_0_and_white_is_the_largest_value_of_the_type(tmp_path, array):
    assert picture(save_figure(tmp_path, "x", array, 0)).tolist() == [[0, 255]]


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (np.full((2, 2), 200.0), "floats from 200.0 to 200.0, not 0 to 1"),
        (np.full((2, 2), np.nan), "floats from nan"),
        (np.full((2, 2), -1), "values from -1 to -1, not 0 to 255"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.zeros((2, 2), complex), "elements of type complex128"),
        ("figure", "of type str"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_was_seen(tmp_path, figure, message):
    with pytest.raises(UsageError, match=message):
        save_figure(tmp_path, "x", figure, 0)

    assert list_media(tmp_path) == []


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "F", "P", "HSV", "1"])
def test_an_image_of_pillow_is_saved_in_any_mode(tmp_path, mode):
    assert picture(save_figure(tmp_path, "x", Image.new(mode, (6, 4)), 0)).shape[:2] == (4, 6)


def test_a_figure_of_matplotlib_draws_itself(tmp_path):
    def savefig(file, format):
        file.write(format.encode())

    path = save_figure(tmp_path, "x", SimpleNamespace(savefig=savefig), 0)

    assert path.read_bytes() == b"png"


def test_without_ffmpeg_a_video_is_an_animated_gif(tmp_path, no_ffmpeg):
    frames = np.random.default_rng(0).integers(0, 255, (4, 5, 7, 3), np.uint8)

    path = save_video(tmp_path, "rollout", frames, 3, fps=25)

    assert path.name == "3.gif"
    assert frames_of(path) == (4, (7, 5))
    with Image.open(path) as image:
        assert image.info["duration"] == 40


@pytest.mark.parametrize(
    "frames",
    [
        [np.zeros((4, 6)), np.ones((4, 6, 3)), np.zeros((4, 6, 4)), np.ones((3, 4, 6))],
        (np.full((4, 6), value) for value in (0.0, 0.2, 0.4, 0.6)),
        np.arange(96, dtype=np.uint8).reshape(4, 4, 6),
        [Image.new("RGB", (6, 4), (shade, 0, 0)) for shade in (0, 50, 100, 150)],
    ],
    ids=["list", "iterator", "grey array", "pillow"],
)
def test_frames_come_in_many_forms(tmp_path, no_ffmpeg, frames):
    assert frames_of(save_video(tmp_path, "v", frames, 0, 10)) == (4, (6, 4))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "no frames"),
        (np.zeros((0, 4, 4, 3)), "no frames"),
        ([np.zeros((4, 4)), np.zeros((4, 5))], "frame 1 is 5x4 pixels and frame 0 is 4x4"),
        ([np.zeros((4, 4)), None], "frame 1 is of type NoneType"),
        (np.zeros((64, 64, 3)), r"frames have shape \(64, 64, 3\)"),
        (5, "frames are of type int"),
        ("missing.mp4", "no video file missing.mp4"),
        (__file__, "is no video file"),
    ],
)
def test_frames_that_make_no_video_are_refused_with_what_was_seen(tmp_path, no_ffmpeg, frames, message):
    with pytest.raises(UsageError, match=message):
        save_video(tmp_path, "v", frames, 0, 30)

    assert list_media(tmp_path) == []
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf"), "30", True])
def test_fps_must_be_a_number_above_0(tmp_path, fps):
    with pytest.raises(UsageError, match="fps"):
        save_video(tmp_path, "v", [np.zeros((2, 2))], 0, fps)


def test_ffmpeg_is_fed_raw_rgb_frames(tmp_path, fake_ffmpeg):
    program = fake_ffmpeg('for last; do :; done; echo "$@" > "$0.arguments"; cat > "$last"')

    path = save_video(tmp_path, "v", [np.full((3, 5), value, np.uint8) for value in (1, 2)], 9, fps=12.5)

    arguments = Path(f"{program}.arguments").read_text()
    assert path.name == "9.mp4"
    assert path.read_bytes() == bytes([1] * 45 + [2] * 45)
    assert "-s 5x3 -r 12.5" in arguments
    assert "yuv420p" in arguments


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("echo bad width >&2; exit 1", DataError, "ffmpeg could not write the video: bad width"),
        ("cat >/dev/null; exit 3", DataError, "exit code 3"),
        ("echo No space left on device >&2; exit 1", OSError, "No space left"),
    ],
)
def test_a_failure_of_ffmpeg_is_told_and_leaves_nothing(tmp_path, fake_ffmpeg, script, error, message):
    fake_ffmpeg(script)

    with pytest.raises(error, match=message):
        save_video(tmp_path, "v", (np.zeros((200, 200)) for _ in range(50)), 0, 30)

    assert list_media(tmp_path) == []
    assert leftovers(tmp_path) == []


def test_frames_that_fail_halfway_end_ffmpeg_and_leave_nothing(tmp_path, fake_ffmpeg):
    fake_ffmpeg('for last; do :; done; cat > "$last"')

    with pytest.raises(UsageError, match="frame 2"):
        save_video(tmp_path, "v", [np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((9, 4))], 0, 30)

    assert list_media(tmp_path) == []
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(videos.find_ffmpeg() is None, reason="no ffmpeg here")
def test_a_real_ffmpeg_pads_odd_sizes_to_even_ones(tmp_path):
    path = save_video(tmp_path, "v", np.zeros((3, 5, 7, 3), np.uint8), 0, 30)

    assert path.suffix == ".mp4"
    assert b"avc1" in path.read_bytes()


def test_an_ffmpeg_without_h264_is_not_taken(tmp_path, fake_ffmpeg):
    poor = fake_ffmpeg("echo mpeg4")

    assert not videos._writes_h264(str(poor))
    assert not videos._writes_h264(str(tmp_path / "missing"))
    assert videos._writes_h264(str(fake_ffmpeg("echo ' V....D libx264'")))


def test_a_finished_video_is_copied(tmp_path):
    source = tmp_path / "rollout.MP4"
    source.write_bytes(b"video")

    path = save_video(tmp_path / "run", "v", str(source), 4, 30)

    assert path.name == "4.mp4"
    assert path.read_bytes() == b"video"
    assert source.exists()


def test_a_text_is_kept_to_the_byte(tmp_path):
    path = save_text(tmp_path, "notes", "é\r\n\n", 2)

    assert path.read_bytes() == "é\r\n\n".encode()
    with pytest.raises(UsageError, match="of type int"):
        save_text(tmp_path, "notes", 3, 2)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_inside_the_run_and_is_listed_as_it_was(tmp_path, name):
    run = tmp_path / "book" / "run"

    text = save_text(run, name, "x", 1)

    assert text.resolve().is_relative_to(run / "media")
    assert [(item.name, item.step, item.kind) for item in list_media(run)] == [(name, 1, "text")]
    assert list(tmp_path.iterdir()) == [tmp_path / "book"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_a_hostile_name_stays_inside_the_run(tmp_path, name):
    run = tmp_path / "book" / "run"
    (tmp_path / "source").write_text("x")

    path = save_file(run, tmp_path / "source", name)

    assert path.resolve().is_relative_to(run / "files")
    assert path.read_text() == "x"
    assert len(list_media(run)) == 1


@pytest.mark.parametrize("name", ["", "/", "//"])
def test_a_file_needs_a_name(tmp_path, name):
    (tmp_path / "source").write_text("x")

    with pytest.raises(InvalidName):
        save_file(tmp_path / "run", tmp_path / "source", name)


def test_a_file_is_copied_under_its_own_name_or_another(tmp_path):
    source = tmp_path / "my notes.txt"
    source.write_text("x")

    save_file(tmp_path / "run", source, None)
    save_file(tmp_path / "run", source, "docs/notes.txt")

    items = list_media(tmp_path / "run")
    assert [(item.name, item.kind, item.step, item.bytes) for item in items] == [
        ("docs/notes.txt", "file", None, 1),
        ("my notes.txt", "file", None, 1),
    ]


def test_a_folder_is_copied_and_saved_again_it_is_replaced(tmp_path):
    source = tmp_path / "configs"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.yaml").write_text("1")
    (source / "loop").symlink_to(source)
    save_file(tmp_path / "run", source)
    (source / "deep" / "a.yaml").rename(source / "b.yaml")

    path = save_file(tmp_path / "run", source)

    assert [item.name for item in list_media(tmp_path / "run")] == ["configs/b.yaml"]
    assert path == tmp_path / "run" / "files" / "configs"
    assert leftovers(tmp_path / "run") == []


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*gone\.txt\nhint: it was looked for in"):
        save_file(tmp_path, tmp_path / "gone.txt")


def test_a_folder_that_holds_the_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds the run itself"):
        save_file(tmp_path / "book" / "run", tmp_path)


def test_a_name_below_that_of_a_file_is_refused(tmp_path):
    (tmp_path / "source").write_text("x")
    save_file(tmp_path / "run", tmp_path / "source", "a")

    with pytest.raises(UsageError, match="below a name"):
        save_file(tmp_path / "run", tmp_path / "source", "a/b")


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.write_text("old")
    save_file(tmp_path / "run", source)

    def full(source, target):
        target.write_text("ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        save_file(tmp_path / "run", source)

    assert (tmp_path / "run" / "files" / "source").read_text() == "old"
    assert leftovers(tmp_path / "run") == []


def test_media_are_listed_by_name_and_step(tmp_path):
    for step in (10, 9):
        save_text(tmp_path, "b", "x", step)
    save_figure(tmp_path, "a", np.zeros((2, 2)), 5)
    (tmp_path / "media" / "b" / ".9.txt.123").write_text("half")

    items = list_media(tmp_path)

    assert [(item.name, item.step, item.kind) for item in items] == [
        ("a", 5, "figure"),
        ("b", 9, "text"),
        ("b", 10, "text"),
    ]
    assert items[0].path == str(tmp_path / "media" / "a" / "5.png")


def test_a_step_of_media_is_a_whole_number_from_0_up(tmp_path):
    with pytest.raises(UsageError, match="a step must be"):
        save_text(tmp_path, "a", "x", -1)


def test_every_kind_of_video_file_is_listed_as_a_video(tmp_path):
    for suffix in media.VIDEO_SUFFIXES:
        source = tmp_path / f"x{suffix}"
        source.write_bytes(b"x")
        save_video(tmp_path / "run", suffix, source, 0, 30)

    assert {item.kind for item in list_media(tmp_path / "run")} == {"video"}

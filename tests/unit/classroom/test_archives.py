"""Nothing in an archive or a folder reaches a disk, and what tries is refused with a sentence."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import struct
import tarfile
import zipfile

import pytest

from grader.classroom.archives import Limits, Rejected, clean_name, is_archive, read_entry, without_suffix

SOURCE = b"class GroupedQueryAttention: ...\n"


def zip_bytes(members, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def tar_bytes(members, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def read(tmp_path, name, data, limits=None):
    path = tmp_path / name
    path.write_bytes(data)
    return read_entry(path, limits)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.zip", zip_bytes),
        ("a.tar", tar_bytes),
        ("a.tgz", lambda members: tar_bytes(members, "w:gz")),
        ("a.tar.bz2", lambda members: tar_bytes(members, "w:bz2")),
        ("a.tar.xz", lambda members: tar_bytes(members, "w:xz")),
        ("misnamed.tar", lambda members: tar_bytes(members, "w:gz")),
    ],
)
def test_every_kind_of_archive_gives_its_python_files(tmp_path, name, pack):
    noise = os.urandom(300_000)
    contents = read(
        tmp_path, name, pack([("hw/gqa.py", SOURCE), ("hw/data.bin", noise), ("hw/lösung 答え.py", b"x = 1\n")])
    )
    assert contents.python == {"hw/gqa.py": SOURCE, "hw/lösung 答え.py": b"x = 1\n"}
    assert contents.others == ["hw/data.bin"]


def test_highly_compressible_members_come_out_whole(tmp_path):
    """The decompressor holds output back at the end of its input; none of it may be lost."""
    for size in (65_530, 65_536, 131_072, 400_001):
        source = b"#" * size
        for name, mode in (("a.tgz", "w:gz"), ("b.tar.bz2", "w:bz2"), ("c.tar.xz", "w:xz")):
            assert read(tmp_path, name, tar_bytes([("gqa.py", source)], mode)).python == {"gqa.py": source}


def test_a_gzip_of_several_members_is_read_to_its_end(tmp_path):
    plain = tar_bytes([("gqa.py", SOURCE), ("moe.py", b"y = 2\n")])
    packed = gzip.compress(plain[:700]) + gzip.compress(plain[700:])
    assert set(read(tmp_path, "a.tgz", packed).python) == {"gqa.py", "moe.py"}


@pytest.mark.parametrize(
    "name",
    [
        "../gqa.py",
        "a/../../gqa.py",
        "..\\..\\gqa.py",
        "/etc/gqa.py",
        "\\\\server\\share\\gqa.py",
        "C:\\gqa.py",
        "c:gqa.py",
        "a\nb.py",
        "gqa.py\x7f",
        "x/" * 40 + "gqa.py",
        "é" * 200 + ".py",
    ],
)
def test_a_name_that_would_leave_the_submission_is_refused(tmp_path, name):
    with pytest.raises(Rejected):
        clean_name(name)
    with pytest.raises(Rejected):
        read(tmp_path, "a.zip", zip_bytes([("gqa.py", SOURCE), (name, b"x")]))
    with pytest.raises(Rejected):
        read(tmp_path, "a.tar", tar_bytes([("gqa.py", SOURCE), (name, b"x")]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "a.zip"]


def test_a_prefix_that_only_looks_like_the_folder_is_no_way_out():
    """The classic bug: startswith('/sub') also lets '/submission-of-another' through."""
    with pytest.raises(Rejected):
        clean_name("../submission-2/gqa.py")


def test_a_nul_in_a_zip_name_is_refused(tmp_path):
    data = zip_bytes([("gqaX.py", SOURCE)]).replace(b"gqaX.py", b"gqa\0.py")
    with pytest.raises(Rejected):
        read(tmp_path, "a.zip", data)


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_devices_and_sparse_members_of_a_tar_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("gqa.py")
    info.type = kind
    info.linkname = "/etc/passwd"
    with pytest.raises(Rejected, match=r"link or a device|damaged"):
        read(tmp_path, "a.tar", tar_bytes([(info, b"")]))


def test_a_link_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("gqa.py")
    info.external_attr = 0o120777 << 16
    with pytest.raises(Rejected, match="link"):
        read(tmp_path, "a.zip", zip_bytes([(info, b"/etc/passwd")]))


def test_links_fifos_and_hard_links_of_a_folder_are_refused(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_bytes(SOURCE)
    for make in (
        lambda path: path.symlink_to(secret),
        lambda path: path.hardlink_to(secret),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(tmp_path, target_is_directory=True),
        lambda path: path.symlink_to("nowhere"),
    ):
        folder = tmp_path / "student"
        folder.mkdir()
        make(folder / "gqa.py")
        with pytest.raises(Rejected, match=r"'gqa\.py' is"):
            read_entry(folder)
        (folder / "gqa.py").unlink()
        folder.rmdir()


def test_an_entry_that_is_itself_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "student").symlink_to(tmp_path / "real", target_is_directory=True)
    with pytest.raises(Rejected, match="link"):
        read_entry(tmp_path / "student")


def test_an_environment_in_a_folder_is_passed_over_links_and_all(tmp_path):
    bin_folder = tmp_path / "student" / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to("/usr/bin/python3")
    (tmp_path / "student" / "gqa.py").write_bytes(SOURCE)
    assert read_entry(tmp_path / "student").python == {"gqa.py": SOURCE}


def test_ten_thousand_files_are_refused(tmp_path):
    members = [(f"f{at}.py", b"") for at in range(10_000)]
    for name, data in (("a.zip", zip_bytes(members)), ("a.tar", tar_bytes(members))):
        with pytest.raises(Rejected, match="more than 2,000 files"):
            read(tmp_path, name, data)
    folder = tmp_path / "folder"
    folder.mkdir()
    for at in range(2_001):
        (folder / f"f{at}.py").touch()
    with pytest.raises(Rejected, match="more than 2,000 files"):
        read_entry(folder)


def test_a_zip_directory_too_large_to_list_is_refused_before_it_is_listed(tmp_path, monkeypatch):
    data = zip_bytes([(f"f{at}", b"") for at in range(60_000)])
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(Rejected, match="more than 2,000 files"):
        read(tmp_path, "a.zip", data)


def test_bombs_are_refused(tmp_path):
    zeros = bytes(80 << 20)
    for name, data in (
        ("a.zip", zip_bytes([("zeros.bin", zeros)])),
        ("a.tgz", tar_bytes([("zeros.bin", zeros)], "w:gz")),
        ("a.tar.bz2", tar_bytes([("zeros.bin", zeros)], "w:bz2")),
    ):
        assert len(data) < 1 << 20
        with pytest.raises(Rejected, match="larger than 64 MiB"):
            read(tmp_path, name, data)


def test_a_zip_that_lies_about_its_sizes_gains_nothing(tmp_path):
    """The claimed size is 10 bytes; what comes out of a Python file is cut at the limit of one file."""
    data = bytearray(zip_bytes([("gqa.py", b"#" * (20 << 20))]))
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<L", data, at + 24, 10)
    try:
        contents = read(tmp_path, "a.zip", bytes(data))
    except Rejected:
        return
    assert sum(map(len, contents.python.values())) <= 1 << 20


def test_a_python_file_too_large_is_named_and_not_kept(tmp_path):
    contents = read(tmp_path, "a.zip", zip_bytes([("gqa.py", b"#" * (3 << 20)), ("moe.py", b"x")]))
    assert contents.python == {"moe.py": b"x"}
    assert contents.oversized == {"gqa.py": 3 << 20}


def test_an_archive_in_an_archive_is_read_and_a_third_one_is_refused(tmp_path):
    inner = zip_bytes([("gqa.py", SOURCE)])
    middle = tar_bytes([("inner.zip", inner)], "w:gz")
    assert read(tmp_path, "a.zip", zip_bytes([("inner.zip", inner)])).python == {"inner.zip/gqa.py": SOURCE}
    with pytest.raises(Rejected, match="archive in an archive"):
        read(tmp_path, "b.zip", zip_bytes([("middle.tgz", middle)]))


def test_nested_bombs_share_one_limit(tmp_path):
    bomb = zip_bytes([("zeros.bin", bytes(40 << 20))])
    with pytest.raises(Rejected, match="larger than 64 MiB"):
        read(tmp_path, "a.zip", zip_bytes([("one.zip", bomb), ("two.zip", bomb)]))


def test_an_xz_that_asks_for_a_huge_dictionary_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    packed = lzma.compress(tar_bytes([("gqa.py", SOURCE)]), filters=filters)
    with pytest.raises(Rejected, match="damaged"):
        read(tmp_path, "a.tar.xz", packed)


def test_names_that_collide_are_refused(tmp_path):
    pairs = [("gqa.py", "GQA.py"), ("a/gqa.py", "A/gqa.py"), ("é.py", "e\u0301.py"), ("straße.py", "STRASSE.py")]
    for first, second in pairs:
        with pytest.raises(Rejected, match=r"same file|twice"):
            read(tmp_path, "a.tar", tar_bytes([(first, b"1"), (second, b"2")]))
    with pytest.warns(UserWarning):
        twice = zip_bytes([("gqa.py", b"1"), ("gqa.py", b"2")])
    with pytest.raises(Rejected, match="twice"):
        read(tmp_path, "a.zip", twice)


@pytest.mark.parametrize("cut", [0, 1, 10, 40, -30])
def test_a_damaged_archive_is_refused_with_a_sentence(tmp_path, cut):
    members = [("gqa.py", os.urandom(3000).hex().encode())]
    for name, data in (("a.zip", zip_bytes(members)), ("a.tgz", tar_bytes(members, "w:gz"))):
        with pytest.raises(Rejected, match="damaged"):
            read(tmp_path, name, data[:cut])


def test_noise_in_an_archive_is_only_ever_refused(tmp_path):
    """Flip bytes at random: either the file is read, or it is a sentence; nothing else comes out."""
    rng = random.Random(7)
    for name, data in (
        ("a.zip", zip_bytes([("gqa.py", SOURCE * 50), ("b/moe.py", b"y")])),
        ("a.tar", tar_bytes([("gqa.py", SOURCE * 50), ("b/moe.py", b"y")])),
        ("a.tar.xz", tar_bytes([("gqa.py", SOURCE * 50)], "w:xz")),
    ):
        for _ in range(300):
            broken = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            try:
                read(tmp_path, name, bytes(broken))
            except Rejected as error:
                assert error.message


def test_a_locked_zip_is_refused(tmp_path):
    data = bytearray(zip_bytes([("gqa.py", SOURCE)]))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        offset = data.find(signature) + at
        data[offset] |= 1
    with pytest.raises(Rejected, match="password"):
        read(tmp_path, "a.zip", bytes(data))


def test_utf8_names_without_the_flag_are_read_as_utf8(tmp_path):
    data = zip_bytes([("gqa_Zoë.py", SOURCE)])
    for signature, at in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
        broken = bytearray(data)
        broken[broken.find(signature) + at] &= ~0x08 & 0xFF
        data = bytes(broken)
    assert set(read(tmp_path, "a.zip", data).python) == {"gqa_Zoë.py"}


def test_suffixes():
    assert is_archive("A.TAR.GZ") and is_archive("x.zip") and not is_archive("x.py")
    assert without_suffix("ada.tar.gz") == "ada"
    assert without_suffix("ada.py") == "ada"
    assert without_suffix("ada") == "ada"


def test_the_limits_can_be_set(tmp_path):
    with pytest.raises(Rejected, match="more than 1 files"):
        read(tmp_path, "a.zip", zip_bytes([("a.py", b""), ("b.py", b"")]), Limits(files=1))

"""Extract an archive with a device, a climbing name, an absolute link and a set-id file into the scratch.

Source: F19
"""

import io
import tarfile

from tests.escape.kit import Scene, tried

FILTERED = ["AbsoluteLinkError", "OutsideDestinationError", "SpecialFileError"]
EXPECT = FILTERED if hasattr(tarfile, "data_filter") else ["TypeError"]  # Python 3.11.3 and before know no filters


def attack(scene: Scene) -> object:
    raised = set()
    for name, kind, target in (
        ("dev", tarfile.BLKTYPE, ""),
        ("../x", tarfile.REGTYPE, ""),
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
    ):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            raised.add(tried(archive.extractall, "/tmp", filter="data"))
    return sorted(raised)

"""Which segments count: the newest version of every run, exactly once."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse.storage.tables import SCHEMA

MORNING = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)


def segment(segment_id, versions, replaces=(), rollouts=10, created_at=MORNING):
    from nightjar.warehouse.storage.segments import KINDS, Segment

    rows = dict.fromkeys(KINDS, 1) | {"rollouts": rollouts}
    sizes, digests = dict.fromkeys(KINDS, 100), dict.fromkeys(KINDS, "9f03")
    return Segment(segment_id, versions, rows, sizes, created_at, digests, "0.1.0", tuple(replaces))


def publish(run_id, version, **fields):
    return segment(f"{run_id}.{version}", {run_id: version}, **fields)


def catalog_of(segments):
    from nightjar.warehouse.storage.segments import Catalog

    return Catalog({one.segment_id: one for one in segments})


def what_counts(catalog):
    """run_id to the versions of it that a query sees, by reading the sources as a query does."""
    seen = defaultdict(list)
    for source in catalog.sources():
        for segment_id in source.segment_ids:
            for run_id, version in catalog.segments[segment_id].versions.items():
                if run_id not in source.without:
                    seen[run_id].append(version)
    return dict(seen)


def test_a_description_is_read_back_also_with_unknown_fields_but_not_a_damaged_or_newer_one():
    from nightjar.warehouse.storage.segments import Segment, segment_id_of

    written = segment("pack-1", {"a": "1", "b": "2"}, ["x", "y"])
    assert Segment.load("pack-1", written.dump()) == written
    assert (written.is_pack, written.size) == (True, 400)
    written = segment("a.1", {"a": "1"})
    content = json.loads(written.dump()) | {"packed_by": "ada", "segment_id": "other"}
    assert Segment.load("a.1", json.dumps(content).encode()) == written
    for damaged in (
        b"", b"[]", b"null", b"{}", b'{"schema": 3}', b'{"schema": 3, "created_at": "noon", "replaces": []}', b"\xff",
        segment("a.1", {}).dump().replace(b'"rows"', b'"lines"'),
    ):  # fmt: skip
        with pytest.raises(WarehouseError, match=r"Segment 'a\.1' is damaged: segment\.json: "):
            Segment.load("a.1", damaged)
    newer = rf"at version {SCHEMA + 1}, this Nightjar knows version {SCHEMA}\. Upgrade Nightjar"
    with pytest.raises(WarehouseError, match=newer):
        Segment.load("a.1", json.dumps({"schema": SCHEMA + 1, "anything": {}}).encode())
    run_ids = ["a/b", "a%2Fb", "a.1", "a", "A"]
    assert len({segment_id_of(run_id, "1") for run_id in run_ids}) == len(run_ids)


def test_the_newest_version_of_each_run_counts():
    first, second, third = (publish("a", version) for version in "123")
    pack = segment("pack-1", {"a": "1", "b": "1"}, ["a.1", "b.1"])
    pack_of_pack = segment("pack-2", {"a": "1", "b": "1", "c": "1"}, ["pack-1", "c.1"])
    for name, segments, sources, retired in (
        ("nothing", [], [], set()),
        ("two runs", [publish("b", "1"), first], [(("a.1", "b.1"), ())], set()),
        ("versions in order", [first, second, third], [(("a.3",), ())], {"a.1", "a.2"}),
        ("versions in another order", [second, third, first], [(("a.3",), ())], {"a.1", "a.2"}),
        ("a pack and what it replaced", [first, publish("b", "1"), pack], [(("pack-1",), ())], {"a.1", "b.1"}),
        ("a newer version than that in a pack", [pack, second], [(("a.2",), ()), (("pack-1",), ("a",))], set()),
        ("an older version", [pack, publish("a", "0")], [(("pack-1",), ())], {"a.0"}),
        ("of equal versions the one in the larger", [first, segment("big", {"a": "1", "b": "1"}, ["gone"])],
         [(("big",), ())], {"a.1"}),
        ("a pack of which no run counts", [segment("pack-1", {"a": "1"}, ["a.1"]), second], [(("a.2",), ())], set()),
        ("a pack of packs", [pack, pack_of_pack, first, publish("c", "1")], [(("pack-2",), ())],
         {"a.1", "c.1", "pack-1"}),
    ):  # fmt: skip
        catalog = catalog_of(segments)
        assert [(one.segment_ids, one.without) for one in catalog.sources()] == sources, name
        assert set(catalog.retired) == retired, name


def test_a_pack_without_counting_runs_keeps_its_examples_and_one_of_two_equal_packs_counts():
    [source] = catalog_of([segment("pack-1", {"a": "1"}, ["a.1"]), publish("a", "2")]).example_sources()
    assert (source.segment_ids, source.without) == (("a.2", "pack-1"), ())
    # two machines may pack at the same time, where no lock keeps them apart
    packs = [segment(f"pack-{n}", {"a": "1", "b": "1"}, ["a.1", "b.1"]) for n in range(2)]
    assert what_counts(catalog_of([*packs, publish("a", "1")])) == {"a": ["1"], "b": ["1"]}


def test_enough_segments_of_a_size_that_count_are_merged_up_to_a_large_one():
    from nightjar.warehouse.writing.packing import FAN_IN, LARGE_ROLLOUTS, crowded

    def several(name, count=FAN_IN, rollouts=10):
        return [
            publish(f"{name}-{n:02}", "1", rollouts=rollouts, created_at=MORNING + timedelta(n)) for n in range(count)
        ]

    assert crowded(catalog_of(several("run", FAN_IN - 1))) == []
    small = several("run")
    assert crowded(catalog_of(reversed(small))) == small
    assert crowded(catalog_of([*small, *several("large", FAN_IN - 1, 500)])) == small
    assert crowded(catalog_of([publish("run", str(n)) for n in range(FAN_IN)])) == []
    for rollouts, merged in ((0, FAN_IN), (LARGE_ROLLOUTS // 2, 2), (LARGE_ROLLOUTS, 0)):
        segments = several("run", rollouts=rollouts)
        assert crowded(catalog_of(segments)) == segments[:merged]


class Folder:
    """A folder of segments as the operations of publishing, packing and removing change it."""

    def __init__(self):
        self.segments, self.newest, self.packs = {}, {}, 0

    @property
    def catalog(self):
        return catalog_of(self.segments.values())

    def publish(self, random):
        """Publishes unless just this version counts already, as ``publish_run`` does."""
        run_id, version = random.choice("abcd"), random.choice("123")
        held = self.catalog.holders.get(run_id)
        if held is None or held.versions[run_id] != version:
            made = publish(run_id, version)
            self.segments.setdefault(made.segment_id, made)
        self.newest[run_id] = max(version, self.newest.get(run_id, version))

    def merge(self, random):
        """Merges some of what is live, as ``merge`` does."""
        catalog = self.catalog
        live = sorted(catalog.live)
        chosen = [catalog.segments[name] for name in random.sample(live, min(len(live), random.randint(1, 4)))]
        versions = {}
        for one in chosen:
            versions |= {run_id: it for run_id, it in one.versions.items() if run_id not in catalog.dead_runs(one)}
        if versions:
            self.packs += 1
            name = f"pack-{self.packs:03}"
            self.segments[name] = segment(name, versions, [one.segment_id for one in chosen])

    def remove(self, _random):
        """Removes the oldest of what is retired, as ``remove_retired`` does: a pack outlives what it replaces."""
        retired = [name for name in self.segments if name in self.catalog.retired]
        if retired:
            del self.segments[retired[0]]


def test_each_run_counts_once_with_its_newest_version_also_when_old_segments_return():
    """Any segments that were there once may come back, as copies between machines do."""
    for seed in range(300):
        random, folder, ever = Random(seed), Folder(), {}
        for _ in range(random.randrange(30)):
            getattr(folder, random.choice(["publish", "merge", "remove"]))(random)
            ever |= folder.segments
            newest = {run_id: [version] for run_id, version in folder.newest.items()}
            assert what_counts(folder.catalog) == newest, seed
            back = random.sample(sorted(ever), random.randint(0, len(ever)))
            returned = catalog_of([*folder.segments.values(), *(ever[name] for name in back)])
            assert what_counts(returned) == newest, seed

"""Commands that change a warehouse which cannot be written say so in one line."""

import pytest

from nightjar.warehouse import Warehouse


@pytest.mark.parametrize(
    "command", ["prices set m --input 1 --output 2", "prices remove m", "import {run_dir}", "rebuild {run_dir}"]
)
def test_a_disk_that_became_read_only(nightjar, mount, run_writer, tmp_path, command):
    disk = mount("size=4m")
    run_dir = run_writer.write(tmp_path / "run-1")
    Warehouse(disk).publish(run_dir)
    mount("remount,ro")
    ended = nightjar.start("warehouse", *command.format(run_dir=run_dir).split(), "--warehouse", disk).wait()
    assert ended.code == 1
    assert ended.stderr == (
        f"Error: Cannot write the warehouse {disk}: Read-only file system ({disk}/segments). "
        "Name another with --warehouse or NIGHTJAR_WAREHOUSE.\n"
    )

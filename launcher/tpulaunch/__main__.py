"""``python -m tpulaunch``, the same as the console script."""

from tpulaunch.cli.main import run

if __name__ == "__main__":
    run()

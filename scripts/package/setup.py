# Makes the wheel of a staged folder (see wheel.sh). The wheel contains programs, so it is for one
# kind of machine. Any Python 3 can use it.
import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class OneMachine(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", os.environ["WHEEL_PLATFORM"]


def below(folder):
    return [os.path.join(path, f) for path, _, files in os.walk(folder) for f in files]


setup(
    name="dfshim",
    version=os.environ["WHEEL_VERSION"],
    description="Collectives that cannot deadlock, in front of NCCL",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.8",
    packages=["dfshim", "dfshim.host"],
    package_data={"dfshim": [os.path.relpath(f, "dfshim")
                             for f in below("dfshim/bin") + below("dfshim/lib")],
                  "dfshim.host": ["site/sitecustomize.py"]},
    data_files=[(folder, below(folder)) for folder in ("share/man/man1", "share/man/man7")],
    entry_points={"console_scripts": ["dfshim = dfshim.__main__:main"]},
    distclass=OneMachine,
    cmdclass={"bdist_wheel": AnyPython},
)

# /// script
# dependencies = ["hypothesis==6.136.4"]
# ///
# Which modules are the function's own and which a package's, as libraries ask. Right: [[], true, true].
import os
import site
import sys
import sysconfig

import attr
from hypothesis.internal.constants_ast import is_local_module_file


def handler(event, context):
    where = os.path.dirname(os.path.dirname(attr.__file__))
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    own = {name.partition(".")[0] for name, file in files.items() if file and is_local_module_file(file)}
    paths = sysconfig.get_paths()
    return [sorted(own - {__name__}), where == paths["purelib"] == paths["platlib"], site.getsitepackages() == [where]]

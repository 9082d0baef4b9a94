/*
 * Reports the PyTorch of a Python program on this machine. It is found as in a job: by python3 of
 * PATH, which this part becomes. The parent ends a slow import; results that need no import are
 * reported before.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "trace/cli/doctor/doctor.h"

/* Not from the current folder: a file with that name there must not be run. */
static const char script[] =
	"import importlib.util, os, runpy, sys\n"
	"sys.path[:] = [p for p in sys.path if p]\n"
	"def report(name, value):\n"
	"    line = 'fact\\t%s\\t%s' % (name, ' '.join(str(value).split())[:600])\n"
	"    os.write(3, line.encode('ascii', 'replace') + b'\\n')\n"
	"spec = importlib.util.find_spec('torch')\n"
	"if spec is None or not spec.origin:\n"
	"    report('PyTorch', 'none: Python without torch (%s)' % sys.executable)\n"
	"    sys.exit()\n"
	"folder = os.path.dirname(spec.origin)\n"
	"try:\n"
	"    v = runpy.run_path(os.path.join(folder, 'version.py'))\n"
	"except Exception as e:\n"
	"    v = {'__version__': 'version unknown (%s)' % e, 'cuda': 'unknown'}\n"
	"cuda = v.get('cuda')\n"
	"report('PyTorch', '%s, %s, %s' % (v.get('__version__'), 'CUDA %s' % cuda if cuda else\n"
	"     'without CUDA: dfshim needs a build with CUDA, on CPU threads too', folder))\n"
	"if not cuda:\n"
	"    sys.exit()\n"
	"try:\n"
	"    import torch\n"
	"    report('its NCCL', '.'.join(map(str, torch.cuda.nccl.version())))\n"
	"except Exception as e:\n"
	"    report('its NCCL', 'unknown: %s: %s' % (type(e).__name__, e))\n";

int df_doctor_python(void)
{
	execlp("python3", "python3", "-c", script, (char *)NULL);
	df_doctor_tell("fact\tPyTorch\tnone: python3: %s", strerror(errno));
	return 0;
}

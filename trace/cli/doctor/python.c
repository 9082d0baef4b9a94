/*
 * Reports the PyTorch that a Python program finds on this machine. This part becomes the python3 of
 * PATH, as in a job. It reports what needs no import first, because the parent ends a slow import.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "trace/cli/doctor/doctor.h"

/* Does not import from the current folder, so that no file with such a name there is run. */
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

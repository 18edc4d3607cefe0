"""What can go wrong in a job, by name. All are WeftError; those that end the job on every rank are JobFailed."""


class WeftError(RuntimeError):
    """Anything that Weft refuses or reports."""


class NotSupported(WeftError):
    """A model, an optimizer or a tensor that `overlap` cannot handle; the words say which and why."""


class LaunchError(WeftError):
    """The ranks of the job do not find each other."""


class JobFailed(WeftError):
    """The job cannot go on: a rank was lost, gave up or stopped answering. Every rank raises it, with the reason."""


class ModelsDiffer(JobFailed):
    """Ranks were given different models: another number, name, shape or type of parameters."""


class ModuleChanged(JobFailed):
    """The parameters of the model are not those that `overlap` was given."""


class StepChanged(JobFailed):
    """The job does something that it did not do in the measured steps and that the plan cannot follow."""


class PlanMismatch(WeftError):
    """A plan file was made for another model or another number of ranks."""

"""Training jobs as people write them, by theme. Each trains with DistributedDataParallel, or with weft.torch in one of its modes, and
says in the end what counts; pytorch_jobs_test.py compares."""

/* SPDX-License-Identifier: Apache-2.0
 *
 * Images per second out of a loader:
 *   bench_data [SPEC [BATCH [HxW]]]   (default: fashion-mnist 128 at its own size)
 * Prints the best of five runs of up to one epoch.
 */
#include <stdio.h>
#include <time.h>

#include "client/data/dataset.h"

static double now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static enum gp_status run_epoch(struct gp_loader *l, uint32_t epoch, double *rate, struct gp_err *err)
{
	int64_t images = 0;
	GP_TRY(gp_loader_seek(l, epoch, 0, err));
	double start = now_s();
	for (uint32_t i = 0; i < gp_loader_batches_per_epoch(l) && now_s() - start < 5; i++) {
		struct gp_batch *b;
		GP_TRY(gp_loader_next(l, &b, err));
		images += b->valid;
		gp_loader_give_back(l, b);
	}
	*rate = (double)images / (now_s() - start);
	return GP_OK;
}

static enum gp_status bench(int argc, char **argv, struct gp_err *err)
{
	const char *spec = argc > 1 ? argv[1] : "fashion-mnist";
	struct gp_loader_spec loader = {.batch = argc > 2 ? atoi(argv[2]) : 128, .shuffle = true, .prefetch = 4};
	struct gp_dataset_options options = {.augment = true};
	struct gp_dataset *d;
	struct gp_loader *l;
	double best = 0, rate = 0;
	char text[64];
	int h, w;
	GP_TRY(gp_dataset_open(spec, GP_SPLIT_TRAIN, &options, &d, err));
	if (argc > 3 && sscanf(argv[3], "%dx%d", &h, &w) == 2) {
		options.shape = (struct gp_shape){.ndim = 3, .dim = {h, w, gp_dataset_shape(d)->dim[2]}};
		gp_dataset_free(d);
		GP_TRY(gp_dataset_open(spec, GP_SPLIT_TRAIN, &options, &d, err));
	}
	GP_TRY(gp_loader_new(d, &loader, &l, err));
	for (uint32_t run = 0; run < 5; run++) {
		GP_TRY(run_epoch(l, run, &rate, err));
		best = rate > best ? rate : best;
	}
	printf("%s %s batch %d: %.0f images/s\n", spec, gp_shape_text(gp_dataset_shape(d), text, sizeof text),
	       loader.batch, best);
	gp_loader_free(l);
	gp_dataset_free(d);
	return GP_OK;
}

int main(int argc, char **argv)
{
	struct gp_err err;
	if (bench(argc, argv, &err) == GP_OK)
		return 0;
	gp_err_print(&err, "bench_data");
	return gp_status_exit(err.code);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop (client/train/trainer.h) over an engine that only plays results:
 * what is told about gradient norms, a log that cannot be written, a signal
 * during an evaluation or while statistics are taken anew, and the closing count
 * of checkpoints.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/train/run_state.h"
#include "client/train/trainer.h"

enum { STEPS = 4, BATCH = 2 };

/* An engine whose steps have these norms. */
struct player {
	struct gp_engine base;
	const double *norm;
	int step;
};

static enum gp_status play_step(struct gp_engine *e, const struct gp_batch *batch, const struct gp_batch *next,
				float lr, struct gp_step_result *out, struct gp_err *err)
{
	(void)next;
	struct player *p = (struct player *)e;
	(void)lr;
	(void)err;
	*out = (struct gp_step_result){.loss_sum = 1.0,
				       .samples = (uint64_t)batch->valid,
				       .grad_norm = p->norm ? p->norm[p->step] : (double)NAN};
	p->step++;
	return GP_OK;
}

static struct gp_run_state
	*confirmed_late; /* its checkpoint of the last step is confirmed when weights are fetched, or NULL */

static enum gp_status play_weights(struct gp_engine *e, struct gp_weights *w, struct gp_err *err)
{
	(void)e;
	(void)w;
	(void)err;
	if (confirmed_late)
		gp_run_state_confirm(confirmed_late, STEPS);
	return GP_OK;
}

static void play_figures(struct gp_engine *e, struct gp_engine_figures *out)
{
	(void)e;
	*out = (struct gp_engine_figures){0};
}

static volatile sig_atomic_t stop;
static int slices, stop_at_slice; /* of evaluations; the slice in which a signal comes, or 0 */

static enum gp_status play_evaluate(struct gp_engine *e, struct gp_loader *loader, uint32_t batches,
				    struct gp_step_result *out, struct gp_err *err)
{
	(void)e;
	(void)loader;
	(void)err;
	*out = (struct gp_step_result){.loss_sum = batches, .correct = batches, .samples = 2 * (uint64_t)batches};
	stop = ++slices == stop_at_slice ? SIGTERM : stop;
	return GP_OK;
}

static uint32_t calibrated, stop_at_batch; /* batches, and behind which of them a signal comes; 0: none does */

static enum gp_status play_calibrate(struct gp_engine *e, struct gp_loader *loader, uint32_t batches,
				     const struct gp_engine_watch *watch, struct gp_err *err)
{
	(void)e;
	(void)loader;
	(void)err;
	for (calibrated = 0; calibrated < batches && (calibrated == 0 || gp_engine_goes_on(watch, calibrated));)
		if (++calibrated == stop_at_batch)
			stop = SIGTERM;
	return GP_OK;
}

static enum gp_status play_next(struct gp_engine *e, struct gp_loader *loader, struct gp_batch **out,
				struct gp_err *err)
{
	(void)e;
	return gp_loader_next(loader, out, err);
}

static const struct gp_engine_ops player_ops = {.name = "player",
						.next = play_next,
						.step = play_step,
						.evaluate = play_evaluate,
						.calibrate = play_calibrate,
						.get_weights = play_weights,
						.figures = play_figures};

struct run {
	struct gp_train_report report;
	enum gp_status status, close_status;
	char told[4096]; /* on stderr */
	char log[8192];
};

static void read_all(FILE *f, char *text, size_t size)
{
	rewind(f);
	text[fread(text, 1, size - 1, f)] = '\0';
}

/* STEPS steps with a log in a file of our own, or in `log`. */
static void run_steps(struct run *r, const double *norm, const char *log)
{
	struct gp_err err = {0};
	struct gp_dataset_options options = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .drop_last = true, .prefetch = 1};
	struct gp_dataset *data;
	struct player p = {
		.base.ops = &player_ops, .base.spec.session = {.chunk_samples = BATCH, .chunks = 1}, .norm = norm};
	struct gp_trainer_spec spec = {
		.engine = &p.base, .schedule.base_lr = 0.1, .total_steps = STEPS, .steps_per_epoch = STEPS};
	char path[] = "/tmp/gpsplit-test-XXXXXX";
	int fd = mkstemp(path), saved = dup(2);
	FILE *told = tmpfile(), *written;
	assert_true(fd >= 0 && saved >= 0 && told);
	p.base.spec.session.optim.clip_norm = norm ? 1.0 : 0.0;
	assert_int_equal(
		gp_dataset_open("synthetic:shape=1x8x8,classes=2,samples=16", GP_SPLIT_TRAIN, &options, &data, &err),
		GP_OK);
	assert_int_equal(gp_loader_new(data, &ls, &spec.train, &err), GP_OK);
	assert_int_equal(gp_json_log_open(log ? log : path, false, &spec.log, &err), GP_OK);
	dup2(fileno(told), 2);
	r->status = gp_train(&spec, &r->report, &err);
	dup2(saved, 2);
	close(saved);
	r->close_status = gp_json_log_close(spec.log, &err);
	read_all(told, r->told, sizeof r->told);
	fclose(told);
	written = fdopen(fd, "r");
	read_all(written, r->log, sizeof r->log);
	fclose(written);
	unlink(path);
	gp_loader_free(spec.train);
	gp_dataset_free(data);
}

static int count(const char *text, const char *part)
{
	int n = 0;
	for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
		n++;
	return n;
}

static void norms_are_logged_and_one_that_is_not_finite_is_told_once(void **state)
{
	(void)state;
	static const double norm[STEPS] = {2.5, (double)NAN, (double)INFINITY, 0.5};
	struct run r;
	run_steps(&r, norm, NULL);
	assert_int_equal(r.status, GP_OK);
	assert_int_equal(r.report.steps, STEPS);
	assert_int_equal(r.report.clipped_steps, 2);
	assert_int_equal(count(r.told, "not finite"), 1);
	assert_int_equal(count(r.told, "\n"), 1);
	assert_non_null(strstr(r.told, "step 2:")); /* steps count from 1 */
	assert_int_equal(count(r.log, "\"grad_norm\":2.5"), 1);
	assert_int_equal(count(r.log, "\"grad_norm\":null"), 2);
	assert_int_equal(count(r.log, "\"grad_norm\":0.5"), 1);
}

static void without_clipping_there_is_no_norm(void **state)
{
	(void)state;
	struct run r;
	run_steps(&r, NULL, NULL);
	assert_int_equal(r.status, GP_OK);
	assert_int_equal(r.report.clipped_steps, 0);
	assert_string_equal(r.told, "");
	assert_int_equal(count(r.log, "\"event\":\"step\""), STEPS);
	assert_int_equal(count(r.log, "\"step\":0,"), 0); /* completed steps */
	assert_int_equal(count(r.log, "\"step\":1,\"epoch\":1,"), 1);
	assert_int_equal(count(r.log, "\"step\":4,\"epoch\":1,"), 1);
	assert_int_equal(count(r.log, "\"wire_up_bytes\":null"), STEPS); /* there is no link */
	assert_int_equal(count(r.log, "\"link\":null"), STEPS);
	assert_int_equal(count(r.log, "grad_norm"), 0);
}

static void a_log_that_cannot_be_written_is_told_once_and_the_run_goes_on(void **state)
{
	(void)state;
	struct run r;
	run_steps(&r, NULL, "/dev/full");
	assert_int_equal(r.status, GP_OK);
	assert_int_equal(r.report.steps, STEPS);
	assert_int_equal(count(r.told, " warn main: cannot write JSON log /dev/full"), 1);
	assert_int_equal(count(r.told, "\n"), 1);
	assert_int_equal(r.close_status, GP_IO);
}

/* Trains STEPS steps, then validates with 100 batches. */
static struct gp_train_report run_with_evaluation(int signal_in_slice)
{
	struct gp_err err = {0};
	struct gp_dataset_options options = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .drop_last = true, .prefetch = 1};
	struct gp_dataset *data[2];
	struct player p = {.base.ops = &player_ops, .base.spec.session = {.chunk_samples = BATCH, .chunks = 1}};
	struct gp_trainer_spec spec = {.engine = &p.base,
				       .schedule.base_lr = 0.1,
				       .total_steps = STEPS,
				       .steps_per_epoch = STEPS,
				       .val_batches = 100,
				       .stop = &stop};
	struct gp_loader **loader[2] = {&spec.train, &spec.val};
	struct gp_train_report report;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(gp_dataset_open("synthetic:shape=1x8x8,classes=2,samples=16", GP_SPLIT_TRAIN, &options,
						 &data[i], &err),
				 GP_OK);
		assert_int_equal(gp_loader_new(data[i], &ls, loader[i], &err), GP_OK);
	}
	stop = slices = 0;
	stop_at_slice = signal_in_slice;
	assert_int_equal(gp_train(&spec, &report, &err), GP_OK);
	for (int i = 0; i < 2; i++) {
		gp_loader_free(*loader[i]);
		gp_dataset_free(data[i]);
	}
	return report;
}

static void a_signal_ends_an_evaluation_before_its_end(void **state)
{
	(void)state;
	struct gp_train_report whole = run_with_evaluation(0);
	assert_int_equal(slices, 7);
	assert_false(whole.stopped);
	assert_true(whole.val.acc == 0.5 && whole.val.loss == 0.5);
	struct gp_train_report cut = run_with_evaluation(2);
	assert_int_equal(slices, 2);
	assert_true(cut.stopped);
	assert_int_equal(cut.steps, STEPS);
	assert_true(isnan(cut.val.acc) && isnan(cut.val.loss));
}

/* Two epochs of half of STEPS, statistics taken anew from 50 batches behind each, and a signal behind the third batch. */
static struct gp_train_report run_with_recalibration(struct gp_run_state *run)
{
	struct gp_err err = {0};
	struct gp_dataset_options options = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .drop_last = true, .prefetch = 1};
	struct gp_dataset *data;
	struct player p = {.base.ops = &player_ops, .base.spec.session = {.chunk_samples = BATCH, .chunks = 1}};
	struct gp_trainer_spec spec = {.engine = &p.base,
				       .schedule.base_lr = 0.1,
				       .total_steps = STEPS,
				       .steps_per_epoch = STEPS / 2,
				       .val_batches = 1,
				       .recalibrate = 50,
				       .run = run,
				       .stop = &stop};
	struct gp_train_report report;
	assert_int_equal(
		gp_dataset_open("synthetic:shape=1x8x8,classes=2,samples=16", GP_SPLIT_TRAIN, &options, &data, &err),
		GP_OK);
	assert_int_equal(gp_loader_new(data, &ls, &spec.train, &err), GP_OK);
	assert_int_equal(gp_loader_new(data, &ls, &spec.val, &err), GP_OK);
	stop = 0;
	stop_at_slice = 0;
	stop_at_batch = 3;
	assert_int_equal(gp_train(&spec, &report, &err), GP_OK);
	gp_loader_free(spec.train);
	gp_loader_free(spec.val);
	gp_dataset_free(data);
	return report;
}

static void a_signal_ends_the_taking_of_statistics(void **state)
{
	(void)state;
	const struct gp_train_report r = run_with_recalibration(NULL);
	assert_int_equal(calibrated, 3);
	assert_true(r.stopped);
	assert_int_equal(r.steps, STEPS / 2);
}

/* A step follows, for its checkpoint, and has to see what it would have seen without the signal. What the player does not
 * write is confirmed while weights are fetched, as that of the last step of a run may be. */
static void statistics_that_a_checkpoint_needs_are_taken_whole(void **state)
{
	(void)state;
	char dir[] = "/tmp/gpsplit-test-XXXXXX", command[64];
	struct gp_err err = {0};
	const struct gp_pairs spec = {.count = 0};
	const struct gp_run_state_options o = {
		.dir = dir, .every = 1000, .total_steps = STEPS, .spec = &spec, .stop = &stop};
	assert_non_null(mkdtemp(dir));
	assert_int_equal(gp_run_state_open(&o, &confirmed_late, &err), GP_OK);
	const struct gp_train_report r = run_with_recalibration(confirmed_late);
	assert_int_equal(calibrated, 50);
	assert_true(r.stopped);
	assert_int_equal(r.checkpoints.written, 1);
	assert_int_equal(r.checkpoints.newest, STEPS);
	gp_run_state_close(confirmed_late);
	confirmed_late = NULL;
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norms_are_logged_and_one_that_is_not_finite_is_told_once),
		cmocka_unit_test(without_clipping_there_is_no_norm),
		cmocka_unit_test(a_log_that_cannot_be_written_is_told_once_and_the_run_goes_on),
		cmocka_unit_test(a_signal_ends_an_evaluation_before_its_end),
		cmocka_unit_test(a_signal_ends_the_taking_of_statistics),
		cmocka_unit_test(statistics_that_a_checkpoint_needs_are_taken_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

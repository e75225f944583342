/* SPDX-License-Identifier: Apache-2.0
 *
 * See run_metrics.h. A figure that is not known has its family, and no sample. Test: tests/unit/test_run_monitor.c
 */
#include "client/monitor/run_metrics.h"

#include "common/base/clock.h"
#include "common/metrics/metric_account.h"
#include "common/metrics/metric_process.h"

/* --- the training ------------------------------------------------------------------------------------------------ */

static void put_stages(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	for (enum gp_run_stage s = 0; s < GP_RUN_STAGES; s++)
		gp_row_count_of(row, "stage", gp_run_stage_name(s), s == f->stage);
}

static void put_bound(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	for (enum gp_bound b = 0; b < GP_BOUND_COUNT; b++) {
		const struct gp_metric_row by = gp_row_with(row, "by", gp_bound_name(b));
		gp_row_seconds(&by, f->at.bound_by.ns[b]);
	}
}

static void put_checkpoints(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	gp_row_count_of(row, "outcome", "written", f->at.checkpoints);
	gp_row_count_of(row, "outcome", "failed", f->at.checkpoint_failures);
}

static void put_age(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	const uint64_t now = gp_now_ns();
	gp_row_seconds(row, now > f->told_ns ? now - f->told_ns : 0);
}

#define RUN(X)                                                                                                         \
	X(stage, GAUGE, put_stages(row, f), "1 for what the training does now, 0 for the rest")                        \
	X(figures_age_seconds, GAUGE, put_age(row, f), "Time since the training last reported")                        \
	X(step, GAUGE, gp_row_count(row, f->at.step), "Steps of the run that are done")                                \
	X(steps_planned, GAUGE, gp_row_count(row, f->total_steps), "Steps that the run will have")                     \
	X(epoch, GAUGE, gp_row_count(row, f->at.epoch), "Epoch of the newest step, counted from 1; 0 before it")       \
	X(epochs_planned, GAUGE, gp_row_count(row, f->epochs), "Epochs that the run will have")                        \
	X(steps_total, COUNTER, gp_row_count(row, f->steps_here), "Steps that were done in this process")              \
	X(steps_per_second, GAUGE, gp_row_real(row, f->steps_per_s), "Steps a second, over the last 30 s")             \
	X(step_seconds, GAUGE, gp_row_real(row, f->at.seconds), "Time of the newest step")                             \
	X(loss, GAUGE, gp_row_real(row, f->at.loss), "Loss of the newest step")                                        \
	X(accuracy, GAUGE, gp_row_real(row, f->at.acc), "Accuracy of the newest step, 0 to 1")                         \
	X(epoch_loss, GAUGE, gp_row_real(row, f->at.epoch_loss), "Mean loss over the epoch so far")                    \
	X(epoch_accuracy, GAUGE, gp_row_real(row, f->at.epoch_acc), "Accuracy over the epoch so far, 0 to 1")          \
	X(validation_loss, GAUGE, gp_row_real(row, f->val_loss), "Loss of the newest evaluation")                      \
	X(validation_accuracy, GAUGE, gp_row_real(row, f->val_acc), "Accuracy of the newest evaluation, 0 to 1")       \
	X(evaluations_total, COUNTER, gp_row_count(row, f->evaluations), "Evaluations that were done in this process") \
	X(evaluation_seconds_total, COUNTER, gp_metric_sample(row->text, NULL, 0, f->evaluation_s),                    \
	  "Time of these evaluations")                                                                                 \
	X(learning_rate, GAUGE, gp_row_real(row, f->at.lr), "Learning rate of the newest step")                        \
	X(gradient_norm, GAUGE, gp_row_real(row, f->at.grad_norm),                                                     \
	  "Norm of all gradients of the newest step, before --clip-norm")                                              \
	X(bound_seconds_total, COUNTER, put_bound(row, f), "Time of steps, by what bounded them")                      \
	X(compute_seconds_total, COUNTER, gp_row_seconds(row, f->at.compute_ns),                                       \
	  "Time that this side's thread of computation was busy")                                                      \
	X(checkpoints_total, COUNTER, put_checkpoints(row, f), "Checkpoints of this side, by what became of them")     \
	X(memory_bytes, GAUGE, gp_row_count(row, f->at.memory_bytes), "Memory of plans and frames of this side")

/* --- the link ---------------------------------------------------------------------------------------------------- */

static void put_link(const struct gp_metric_row *row, const struct gp_run_figures *f,
		     void (*put)(const struct gp_metric_row *row, const struct gp_metric_link *l))
{
	const struct gp_account *a = &f->link.account;
	const struct gp_metric_link l = {.up = &a->sent, .down = &a->received, .at_client = true};
	put(row, &l);
}

static void put_bandwidth(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	gp_row_real_of(row, "way", "up", f->up_per_s);
	gp_row_real_of(row, "way", "down", f->down_per_s);
}

static void put_rtt(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	const uint32_t us = f->link.tcp.valid ? f->link.tcp.rtt_us : f->link.rtt_us;
	if (us > 0)
		gp_row_real(row, (double)us * 1e-6);
}

static void put_delivery(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	if (f->link.tcp.valid)
		gp_row_count(row, f->link.tcp.delivery_rate_bytes_s);
}

static void put_unsent(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	if (f->link.tcp.valid)
		gp_row_count(row, f->link.tcp.notsent_bytes);
}

static void put_server_memory(const struct gp_metric_row *row, const struct gp_run_figures *f)
{
	gp_row_count_of(row, "where", "host", f->at.server_memory_bytes);
	gp_row_count_of(row, "where", "device", f->at.server_device_bytes);
}

#define LINK(X)                                                                                                        \
	X(linked, GAUGE, gp_row_count(row, f->link.linked),                                                            \
	  "1: there is a connection to the server; 0: it is waited for")                                               \
	X(reconnects_total, COUNTER, gp_row_count(row, f->link.reconnects), "How often the connection was made anew")  \
	X(window, GAUGE, gp_row_count(row, (uint64_t)f->link.window), "Chunks that may be in flight at once")          \
	X(wire_bytes_total, COUNTER, put_link(row, f, gp_row_wire_bytes),                                              \
	  "Bytes of the connections, up to the server and down from it, all included")                                 \
	X(kernel_bytes_total, COUNTER, gp_row_kernel_bytes(row, &f->link.tcp, true),                                   \
	  "The same bytes, as this end's kernel has counted them: received, and acknowledged by the other end")        \
	X(frame_bytes_total, COUNTER, put_link(row, f, gp_row_frame_bytes),                                            \
	  "Bytes of tensors by kind, as tensors, behind their codec (payload), and on the wire; timed: bytes that "    \
	  "came in the stage_seconds_total of stage wire")                                                             \
	X(frames_total, COUNTER, put_link(row, f, gp_row_frames), "Tensors by kind")                                   \
	X(other_bytes_total, COUNTER, put_link(row, f, gp_row_other_bytes), "Bytes on the wire that are not tensors")  \
	X(stage_seconds_total, COUNTER, put_link(row, f, gp_row_stages),                                               \
	  "Time of the stages that tensors of a kind go through here; stages run side by side")                        \
	X(raw_fallbacks_total, COUNTER, gp_row_count(row, f->at.raw_fallbacks),                                        \
	  "Tensors that a codec here could not represent, so that they travelled raw")                                 \
	X(retransmits_total, COUNTER, gp_row_count(row, f->link.tcp.retransmits),                                      \
	  "Segments that the kernel has sent again, up")                                                               \
	X(retransmitted_bytes_total, COUNTER, gp_row_count(row, f->link.tcp.bytes_retransmitted),                      \
	  "Bytes that the kernel has sent again, up")                                                                  \
	X(bandwidth_bytes_per_second, GAUGE, put_bandwidth(row, f),                                                    \
	  "Bytes a second of the connection, over the last 30 s, as TCP has it")                                       \
	X(rtt_seconds, GAUGE, put_rtt(row, f), "Round trip of the connection")                                         \
	X(delivery_rate_bytes_per_second, GAUGE, put_delivery(row, f),                                                 \
	  "Bytes a second that the link up carries, as the kernel estimates it")                                       \
	X(unsent_bytes, GAUGE, put_unsent(row, f), "Bytes for the server that the kernel holds and has not sent yet")  \
	X(server_memory_bytes, GAUGE, put_server_memory(row, f), "Memory that the session takes at the server")

/* --- all of it --------------------------------------------------------------------------------------------------- */

#define X(name, kind, put, help)                                                                                       \
	static void put_##name(const struct gp_metric_row *row, const struct gp_run_figures *f)                        \
	{                                                                                                              \
		put;                                                                                                   \
	}
RUN(X)
LINK(X)
#undef X

struct family {
	const char *name, *help;
	enum gp_metric_kind kind;
	void (*put)(const struct gp_metric_row *row, const struct gp_run_figures *f);
};

#define X(name, kind, put, help) {"gpclient_" #name, help, GP_METRIC_##kind, put_##name},
static const struct family run_families[] = {RUN(X)}, link_families[] = {LINK(X)};
#undef X

static void write_families(const struct family *family, size_t count, const struct gp_run_figures *f,
			   struct gp_metric_text *t)
{
	const struct gp_metric_row row = {.text = t};
	for (size_t i = 0; i < count; i++) {
		gp_metric_family(t, family[i].name, family[i].kind, family[i].help);
		family[i].put(&row, f);
	}
}

void gp_run_metrics_write(const struct gp_run_figures *f, struct gp_metric_text *t)
{
	const struct gp_metric_label version[] = {{"version", GP_VERSION}};
	gp_metric_family(t, "gpclient_info", GP_METRIC_GAUGE,
			 "The version of the client, as a label; the value is always 1");
	gp_metric_count(t, version, 1, 1);
	gp_metric_process(t, f->started_ms);
	write_families(run_families, sizeof run_families / sizeof run_families[0], f, t);
	if (f->split)
		write_families(link_families, sizeof link_families / sizeof link_families[0], f, t);
}

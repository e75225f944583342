/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report shows of one run, as its log (--log-json; client/JSON.md) tells it. Whatever a log holds takes a
 * bounded amount of memory: series are thinned (report_series.h), lists end at a number that stands below, texts are
 * cut off.
 *
 * Numbers that a log does not have are NaN, texts empty.
 *
 * Threads: one at a time for a run. Tests: tests/unit/test_report.c; fuzz: fuzz_report_log.c
 */
#ifndef GP_REPORT_RUN_H
#define GP_REPORT_RUN_H

#include <jansson.h>

#include "client/trace/bound_by.h"
#include "client/report/report_series.h"
#include "common/wire/interval.h"

#define GP_REPORT_TEXT       256
#define GP_REPORT_DECISIONS  100
#define GP_REPORT_ATTACKS    12
#define GP_REPORT_PICTURES   12
#define GP_REPORT_HISTOGRAMS 32
#define GP_REPORT_BINS       128
#define GP_REPORT_INTERVALS  4096
#define GP_REPORT_NOTICES    4
#define GP_REPORT_DIRECTIONS 4 /* in the order of enum gp_direction */

/* Figures of the series of steps. */
enum gp_report_step {
	GP_STEP_LOSS,
	GP_STEP_ACC,
	GP_STEP_SECONDS,
	GP_STEP_LR,
	GP_STEP_NORM,
	GP_STEP_RTT_S,
	GP_STEP_UP_RATE,
	GP_STEP_DOWN_RATE,
	GP_STEP_UP_BYTES, /* on the wire */
	GP_STEP_DOWN_BYTES,
	GP_STEP_COMPUTE, /* what this side's stages took; compute, encode, ... stand one behind the other */
	GP_STEP_ENCODE,
	GP_STEP_QUEUE,
	GP_STEP_WIRE,
	GP_STEP_DECODE,
	GP_STEP_WAIT,
	GP_STEP_BOUND,                                    /* what bounded the step: GP_BOUND_COUNT of them */
	GP_STEP_PAYLOAD = GP_STEP_BOUND + GP_BOUND_COUNT, /* bytes of each direction */
	GP_STEP_UNCOMPRESSED = GP_STEP_PAYLOAD + GP_REPORT_DIRECTIONS, /* and before the codec */
	GP_STEP_FIGURES = GP_STEP_UNCOMPRESSED + GP_REPORT_DIRECTIONS
};
#define GP_STEP_STAGES (GP_STEP_WAIT - GP_STEP_COMPUTE + 1)

enum gp_report_eval { GP_EVAL_LOSS, GP_EVAL_ACC, GP_EVAL_MCC, GP_EVAL_PEARSON, GP_EVAL_PERPLEXITY, GP_EVAL_FIGURES };
enum gp_report_codec_error { GP_CODEC_REL_ERR, GP_CODEC_COSINE, GP_CODEC_ERROR_FIGURES };
/* Distance correlation of what crosses with the inputs, and with the labels. */
enum gp_report_privacy { GP_PRIVACY_INPUTS, GP_PRIVACY_LABELS, GP_PRIVACY_FIGURES };

struct gp_report_head {
	char model[GP_REPORT_TEXT], data[GP_REPORT_TEXT], server[GP_REPORT_TEXT], precision[32], version[32], begun[40];
	char cut[48], insert_up[GP_REPORT_TEXT], insert_down[GP_REPORT_TEXT];
	char codec[GP_REPORT_DIRECTIONS][GP_REPORT_TEXT];
	char compress[6 * GP_REPORT_TEXT]; /* --compress; empty without, and in logs that say nothing of it */
	double batch, chunks, seed, total_steps;
	bool local, recompute;
};

struct gp_report_decision {
	uint64_t step;
	char direction[32], from[GP_REPORT_TEXT], to[GP_REPORT_TEXT], reason[GP_REPORT_TEXT];
};

struct gp_report_attack {
	char model[GP_REPORT_TEXT], cut[48], codec[GP_REPORT_TEXT];
	double psnr_db, mean_picture_psnr_db, distance_correlation;
	int pictures;
	json_t *original[GP_REPORT_PICTURES], *restored[GP_REPORT_PICTURES]; /* strings that gp_html_is_picture knows */
};

struct gp_report_bins {
	uint64_t step;
	double low, high, below, above, mean, std, smallest, largest;
	int count;
	float share[GP_REPORT_BINS]; /* of all values */
};

struct gp_report_histogram {
	char what[32], of[32];
	struct gp_report_bins first, newest;
};

struct gp_report_interval {
	enum gp_interval_stage stage;
	int chunk;
	double begin_s, end_s, bytes; /* since the step's begin */
};

/* What both ends did in one step. */
struct gp_report_timeline {
	uint64_t step;
	double seconds;
	int count;
	struct gp_report_interval *interval;
};

enum gp_report_state { GP_RUN_UNFINISHED, GP_RUN_DONE, GP_RUN_STOPPED, GP_RUN_FAILED };

struct gp_report_run {
	char name[GP_REPORT_TEXT]; /* of its log */
	struct gp_report_head head;
	uint64_t events; /* of a kind that is known */
	int processes;
	enum gp_report_state state;
	char message[GP_REPORT_TEXT]; /* of the error that ended it */
	uint64_t steps;               /* completed */
	double time_s, earlier_s;     /* of all processes; of those before the newest */
	double up_bytes, down_bytes;  /* of the steps, on the wire; repeated ones included */
	double median_s, val_acc, val_pearson, val_perplexity;
	struct gp_series step, eval;
	struct gp_series codec_error[GP_REPORT_DIRECTIONS],
		privacy[GP_REPORT_DIRECTIONS]; /* without figures: none came */
	struct gp_report_decision *decision;
	int decisions, decisions_left_out;
	struct gp_report_attack attack[GP_REPORT_ATTACKS];
	int attacks, attacks_left_out;
	struct gp_report_histogram *histogram;
	int histograms;
	struct gp_report_timeline timeline;
	int notices;
	char notice[GP_REPORT_NOTICES][GP_REPORT_TEXT];
};

enum gp_status gp_report_run_init(struct gp_report_run *r, const char *name, struct gp_err *err);
void gp_report_run_deinit(struct gp_report_run *r);
/* One that does not fit any more is dropped. */
void gp_report_run_notice(struct gp_report_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a line of the log says. Events that are not known are passed over. GP_INVALID: it is no event of a log. */
enum gp_status gp_report_event(struct gp_report_run *r, const json_t *line, struct gp_err *err);
/* Whether it is the event of this name. */
bool gp_report_is_event(const json_t *line, const char *name);

#endif

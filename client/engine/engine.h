/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine runs training steps and evaluations of one model: in this process
 * alone (engine_local.c, the reference) or split over a link (engine_split.c).
 * The trainer (trainer.h) does not know which. One chunk is batch / chunks
 * samples; gradients add up over the chunks of a step, scaled by 1 / batch, or by
 * 1 / its labels (batch_labels.h).
 *
 * Threads: the caller's thread, which must stay the same. Calls block until
 * their work is done. Test: tests/unit/test_engine.c
 */
#ifndef GP_ENGINE_H
#define GP_ENGINE_H

#include <signal.h>
#include <stdio.h>

#include <uv.h>

#include "common/wire/account.h"
#include "common/codec/codec.h"
#include "client/data/dataset.h"
#include "common/graph/device.h"
#include "common/graph/precision_trial.h"
#include "common/graph/weights.h"
#include "common/wire/session_spec.h"
#include "common/graph/graph_part.h"

struct gp_client_security;
struct gp_insertion;
struct gp_run_monitor;
struct gp_run_state;
struct gp_flows;
struct gp_metrics;
struct gp_privacy_meter;
struct gp_privacy_report;
struct gp_timeline;
struct gp_trace;
struct gp_value_log;
struct gp_codec_auto;
struct gp_codec_events;
struct gp_codec_use;

struct gp_engine_spec {
	const struct gp_graph *graph; /* the whole model */
	const char *device;
	int threads;
	bool window_given; /* the user has set it: a server that allows less is refused */
	bool window_grows; /* split only: where a round trip is long, up to `chunks` (engine_split_window.c) */
	struct gp_session_spec session; /* with eval_only there is no memory for gradients */
	enum gp_loss_kind loss;         /* by the labels of the data */
	bool drop_padding; /* a chunk has as many positions as its longest row, where the devices allow it (padding.h) */
	bool profile;      /* measure every node of this side */
	const struct gp_weights *init;    /* NULL: drawn from seed */
	struct gp_trace *trace;           /* (optional) of a training: outlives the engine */
	struct gp_privacy_meter *privacy; /* (optional) of a training over a link: outlives the engine */
	struct gp_run_monitor *monitor;   /* (optional) is told how the link is; outlives the engine */
	struct gp_run_state *run; /* (optional) checkpoints: written as they fall due, and where the run goes on */
	/* split only; texts and tables must outlive the engine */
	const char *server; /* "HOST:PORT" */
	enum gp_precision
		client_precision; /* of head and tail; a split run equals a local one where it is the body's */
	bool tries_client;        /* the engine sets it to the fastest: common/graph/precision_trial.h */
	struct gp_cut cut;
	const struct gp_codec_auto
		*codec_auto; /* (optional) by direction: codecs change while training; outlives the engine */
	const struct gp_insertion
		*insertion; /* (optional) what gp_insert put there, for the figures; outlives the engine */
	double connect_timeout_s, idle_timeout_s;
	double reconnect_for_s; /* after a broken link; 0: that is the end */
	bool shares_loss;       /* the server is told the loss of each step: --share-loss */
	double patience_s;      /* a server that answers may do nothing for so long, whatever it says; 0: as it says */
	const volatile sig_atomic_t *stop;         /* (optional) set: do not wait for a broken link any more */
	const struct gp_client_security *security; /* NULL: in the clear */
};

struct gp_step_result {
	double loss_sum;           /* over `samples` */
	uint64_t correct, samples; /* samples: labels; where one has several of them, all that are not GP_NO_LABEL */
	double grad_norm;          /* of a training step, before clipping; NaN without clip_norm */
};

/* Bytes per second that the kernel knows to have crossed: up, those that the server's has acknowledged. NaN: not measured,
 * as where there is no TCP. */
struct gp_link_rate {
	double up, down;
};

/* What precisions were chosen by, where the spec has left that to the engine: session.choose_precision, tries_client. */
struct gp_engine_choice {
	bool body_made, client_made;
	struct gp_precision_trial body, client; /* nothing, where there was only one */
};

struct gp_engine_figures {
	struct gp_account account; /* of all connections; zero for a local engine */
	struct gp_tcp_figures tcp; /* of all connections; not valid where there is none */
	struct gp_link_rate rate;  /* over the time that a report is about: its maker sets it, with gp_link_rate */
	enum gp_precision precision, client_precision; /* of the body, and of this side */
	const struct gp_engine_choice *choice;         /* what they were chosen by; as long as the engine */
	/* By direction (act up, act down, grad up, grad down), what this side encoded or decoded; and the names of its
	 * codec's byte stages, NULL behind the last. */
	struct gp_codec_stats codec[4];
	const char *byte_stage[4][GP_CODEC_MAX_STAGES];
	const struct gp_flows
		*flows; /* of a split run: every tensor that crosses; NULL: there is no link. As long as the engine. */
	const struct gp_graph *body;          /* whose inputs and outputs those are */
	const struct gp_codec_use *codec_use; /* with codec_auto: by direction; as long as the engine */
	uint32_t reconnects;
	int window;            /* chunks in flight at once, at most; 0: there is no link */
	uint64_t compute_ns;   /* busy time of this side's compute thread */
	uint64_t memory_bytes; /* plans and frames of this side */
	/* What the server said in READY: bytes of its memory and of its device's own, and the device; NULL or ""
	 * when not known. */
	uint64_t server_memory_bytes, server_device_bytes;
	uint64_t server_limit_bytes; /* what the server allows a session; 0: not known */
	const char *server_device;
	const char *server; /* that the session is at; NULL: there is no link */
	bool of_several;    /* it might be another one */
	uint32_t rtt_us; /* round trip of the link, as the kernel measures it; 0: not measured */
};

struct gp_engine;

/* Batches of an evaluation between two looks at the clock or at a signal; the pipeline runs empty once for each such
 * slice. */
#define GP_EVAL_SLICE 16

/* Sees how far a pass is, on the engine's thread. */
struct gp_engine_watch {
	/* So many batches have begun. False: no further one does. */
	bool (*go_on)(void *arg, uint32_t batches);
	void *arg;
};

struct gp_engine_ops {
	const char *name;
	/*
	 * One step: forward and backward of every chunk, then the update with rate lr. batch->valid is the samples of a step.
	 * Not with session.eval_only. `next` (optional): the batch of the step that follows, by the next call of `step` and
	 * before any other but `next` and `figures`; what does not depend on this step may begin already. It must live until
	 * that step is done.
	 */
	enum gp_status (*step)(struct gp_engine *e, const struct gp_batch *batch, const struct gp_batch *next, float lr,
			       struct gp_step_result *out, struct gp_err *err);
	/* The loader's next batch for a step, as gp_loader_next; the link's heartbeats go on however long that
	 * takes. */
	enum gp_status (*next)(struct gp_engine *e, struct gp_loader *loader, struct gp_batch **out,
			       struct gp_err *err);
	/* `batches` batches from the loader, forward only. */
	enum gp_status (*evaluate)(struct gp_engine *e, struct gp_loader *loader, uint32_t batches,
				   struct gp_step_result *out, struct gp_err *err);
	/*
	 * Running statistics of batch norms, but for frozen ones, become those of the samples of `batches` batches from the
	 * loader, which stands at its first one, each chunk normalized by its own: of fewer where `watch` (optional) ends it.
	 * Not without session.calibrates.
	 */
	enum gp_status (*calibrate)(struct gp_engine *e, struct gp_loader *loader, uint32_t batches,
				    const struct gp_engine_watch *watch, struct gp_err *err);
	/* The loader's next batch, forward only: out gets batch->valid rows of the model's outputs, before any softmax.
	 * Labels are not looked at. The caller gives the batch back. */
	enum gp_status (*predict)(struct gp_engine *e, struct gp_loader *loader, float *out, struct gp_batch **batch,
				  struct gp_err *err);
	/* (optional) Behind a step that is due for spec.privacy: measures it. `batch` is that step's. NULL: there is no link. */
	enum gp_status (*measure)(struct gp_engine *e, const struct gp_batch *batch, struct gp_privacy_report *out,
				  struct gp_err *err);
	/* Waits until everything is committed, then reads every parameter into w (of spec.graph), which gets the shapes that
	 * they have by now (gp_weights_fit). */
	enum gp_status (*get_weights)(struct gp_engine *e, struct gp_weights *w, struct gp_err *err);
	void (*figures)(struct gp_engine *e, struct gp_engine_figures *out);
	/* (optional) Tables of times per node, when spec.profile. Not during a step. */
	void (*print_profile)(struct gp_engine *e, FILE *f);
	void (*free)(struct gp_engine *e);
};

/* Whether a pass goes on behind so many batches; without a watch it does. */
static inline bool gp_engine_goes_on(const struct gp_engine_watch *w, uint32_t batches)
{
	return !w || w->go_on(w->arg, batches);
}

struct gp_engine {
	const struct gp_engine_ops *ops;
	struct gp_engine_spec spec;
	uint64_t steps;   /* done, of the whole run: above 0 at once where a checkpoint was loaded */
	bool looks_ahead; /* `step` has a use for `next` */
	struct gp_engine_choice choice;
	struct gp_timeline *timeline;         /* when what was done; NULL in an engine that does not train */
	struct gp_codec_events *codec_events; /* with codec_auto: what the last step brought; NULL without */
	/* (optional) The caller's, between calls: gets every row of the outputs of `evaluate`, and its label. */
	struct gp_metrics *metrics;
	struct gp_value_log
		*values; /* (optional) gets values of some training steps; freed with the engine, whose tasks use it */
	/* A call has failed because the server is a new one, and the engine went back to a checkpoint: go on at `steps`. */
	bool rewound;
};

enum gp_status gp_engine_new_local(const struct gp_engine_spec *spec, struct gp_engine **out, struct gp_err *err);
enum gp_status gp_engine_new_split(const struct gp_engine_spec *spec, struct gp_engine **out, struct gp_err *err);

#endif

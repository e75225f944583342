/* SPDX-License-Identifier: Apache-2.0
 *
 * What train, eval and infer have in common: the flags that say where a model
 * runs, which one, on what data and with which codecs, and the way from them
 * to a dataset, a graph, weights and an engine. Not here: what is then done
 * with the engine (cmd_*.c).
 *
 * A command's settings begin with struct gp_job_settings, and its table is
 * joined (gp_opt_join) from the rows below and its own. Steps in order:
 * gp_job_begin, gp_job_open_data, gp_job_build, gp_job_open_engine; everything
 * that can be wrong on this side is found before a server is asked.
 *
 * Threads: the main thread. Test: tests/e2e
 */
#ifndef GP_JOB_H
#define GP_JOB_H

#include <jansson.h>

#include "client/codecs/codec_auto.h"
#include "client/engine/engine.h"
#include "client/insert/insert.h"
#include "client/job/norm_mode.h"
#include "client/engine/precision.h"
#include "client/weights/saved_model.h"
#include "client/job/security.h"
#include "common/options/options.h"
#include "common/graph/graph_part.h"

enum gp_job_purpose {
	GP_JOB_TRAIN,
	GP_JOB_EVAL,  /* eval: pictures are prepared as the file of --init says, where nothing else is said */
	GP_JOB_INFER, /* infer: --data may be left out, too */
};

/* --pad, in the order of its choices. */
enum gp_pad { GP_PAD_AUTO, GP_PAD_MAX, GP_PAD_DROP };
#define GP_PAD_CHOICES "auto|max|drop"

#define GP_JOB_CUT "1:-1" /* --cut where nothing says another */

struct gp_job_settings {
	const char *server, *cut, *device;
	bool local;
	int precision;        /* of GP_PRECISION_CHOICES */
	int client_precision; /* of GP_CLIENT_PRECISION_CHOICES */
	int64_t threads;
	double connect_timeout_s, idle_timeout_s, reconnect_for_s;
	struct gp_client_security_files security;
	const char *model, *data, *tokenizer, *token_cache, *input, *init, *init_skip;
	bool init_anyway;
	bool masked_words; /* no row, `pretrain` sets it: a masked language model (lm=1), with data that has masked tokens */
	enum gp_job_purpose purpose; /* no row: the command says it */
	const char *freeze;
	const char *no_decay;     /* no shared row: train alone has the flag; NULL: weight decay is of all parameters */
	int64_t recalibrate;      /* batches; train and eval */
	const char *recalibrated; /* eval's --save */
	const char *batch_norm;   /* no shared row: train alone has the flag; NULL: chunk */
	int64_t seed, batch, chunks, window;
	int pad;                                         /* of GP_PAD_CHOICES */
	const char *codec, *codec_dir[4];                /* act up, act down, grad up, grad down */
	const char *insert, *insert_end[GP_INSERT_ENDS]; /* up, down */
	bool json, progress;
	int64_t skip_bad;
	const char *compress;
	bool recompute;
	bool profile; /* no shared row: train alone has the flag */
	const char *log, *config;
};

/* Offsets are those of struct gp_job_settings. A command that words a row otherwise, or has another default, says so in a row
 * that is `like` these (struct gp_opt). */
extern const struct gp_opt_rows gp_job_where_rows; /* --server --local --cut --device --threads, precisions, timeouts */
extern const struct gp_opt_rows gp_job_alone_rows; /* --cut --device --threads of a command that needs no server */
extern const struct gp_opt_rows gp_job_security_rows; /* --tls, --tls-*, --token-file */
extern const struct gp_opt_rows gp_job_model_rows;  /* --model --data --input --init --init-skip --init-anyway --seed */
extern const struct gp_opt_rows gp_job_freeze_rows; /* --freeze: train and capture */
extern const struct gp_opt_rows gp_job_memory_rows; /* --recompute, --compress: whatever trains, or predicts that */
extern const struct gp_opt_rows gp_job_skip_rows;   /* --skip-bad: train and eval */
extern const struct gp_opt_rows gp_job_recalibrate_rows; /* --recalibrate: train and eval */
extern const struct gp_opt_rows gp_job_batch_rows;       /* --batch --chunks --window */
extern const struct gp_opt_rows gp_job_codec_rows;       /* --codec and activations' */
extern const struct gp_opt_rows gp_job_grad_rows;        /* codecs of gradients */
extern const struct gp_opt_rows gp_job_insert_rows;      /* --insert --insert-up --insert-down */
extern const struct gp_opt_rows gp_job_output_rows;      /* --json --log --config */
extern const struct gp_opt_rows gp_job_progress_rows;

struct gp_job {
	const struct gp_job_settings *set;
	struct gp_graph *graph;
	struct gp_weights *init;     /* NULL without --init */
	struct gp_saved_model saved; /* what its file says about itself; zeroed without */
	bool model_of_file;          /* --model was left out */
	bool saved_words;            /* that file is of a masked language model */
	char given[GP_MODEL_SPEC];   /* --model of `pretrain`, with lm=1 added */
	char data[GP_SAVED_TEXT];    /* for `infer` without --data */
	bool lines;                  /* of `infer`: there is no --data, and --tokenizer makes tokens of lines of text */
	char model[GP_MODEL_SPEC];   /* from gp_job_build on: --model with every option as it was settled */
	struct gp_cut cut;
	struct gp_insertion insertion;         /* from the flags, or the file of --init */
	bool insertion_of_file;                /* from the file of --init, at one end at least */
	bool insertion_loaded[GP_INSERT_ENDS]; /* from the file of --init */
	bool drop_padding;                     /* padding does not travel (padding.h); set by gp_job_build */
	bool values;                           /* the data has values to predict, not classes */
	struct gp_bn_attr norm_mode;           /* what --batch-norm says */
	int without_decay;                     /* trained parameters that --no-decay named */
	struct gp_codec_auto codec_auto[4];    /* by direction; none is on without --codec auto */
	struct gp_session_spec session;        /* from the flags; the optimizer from gp_job_open_engine on */
	enum gp_precision client_precision;    /* what --client-precision came to */
	bool tries_client;                     /* that is what the engine finds to be the fastest */
	struct gp_client_security security;
	struct gp_trace *trace;            /* (optional, before gp_job_open_engine) of a training: outlives the job */
	struct gp_privacy_meter *privacy;  /* (optional, before gp_job_open_engine) of a training: outlives the job */
	struct gp_run_monitor *monitor;    /* (optional, before gp_job_open_engine) of a training: outlives the job */
	bool shares_loss;                  /* (before gp_job_open_engine) as in struct gp_engine_spec */
	const volatile sig_atomic_t *stop; /* (optional, before gp_job_open_engine) set by a signal */
	double patience_s;                 /* (optional, before gp_job_open_engine) as in struct gp_engine_spec */
	/* (optional, before gp_job_open_loader) as in struct gp_loader_spec */
	void (*on_bad)(void *arg, uint32_t sample, const struct gp_err *why);
	void *on_bad_arg;
	struct gp_engine *engine;
};

/* Flags of the four directions' codecs, without dashes: act up, act down, grad up, grad down. */
extern const char *const gp_job_codec_flags[4];

/* Checks the flags and configures the log. `set` must outlive the job; --model, and --data of `infer`, which the user has left
 * out are filled in from the file of --init. */
enum gp_status gp_job_begin(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err);
/* --data, in --input's shape or its own, or else the model's. */
enum gp_status gp_job_open_data(const struct gp_job *j, enum gp_split split, bool augment, struct gp_dataset **out,
				struct gp_err *err);
/* GP_INVALID: the training samples do not fill one batch. */
enum gp_status gp_job_check_batch(const struct gp_job_settings *s, const struct gp_dataset *d, struct gp_err *err);
/* Shuffled for training; otherwise in order, with a last batch that may be short. */
enum gp_status gp_job_open_loader(const struct gp_job *j, struct gp_dataset *d, enum gp_split split,
				  struct gp_loader **out, struct gp_err *err);
/* The model for data like `d`, its cut, and the weights of --init; says on stderr what --init-skip left out, or what was left
 * out where encoders have different heads. */
enum gp_status gp_job_build(struct gp_job *j, const struct gp_dataset *d, struct gp_err *err);
/* The cut, the insertions, the mode of batch norm and --freeze for the graph that is there: a part of gp_job_build, for a
 * job without data. */
enum gp_status gp_job_settle_graph(struct gp_job *j, struct gp_err *err);
/* `optim` NULL: for evaluation and prediction only. `run`: checkpoints of a training, or NULL. */
enum gp_status gp_job_open_engine(struct gp_job *j, const struct gp_optim *optim, struct gp_run_state *run,
				  struct gp_err *err);
/* For a training that begins: says on stderr what its batch norms will suffer from, if anything. */
void gp_job_warn_of_norms(const struct gp_job *j);
/* Safe on a zeroed job. Call it before gp_loader_free of the loaders: the engine may still be reading from one. */
void gp_job_deinit(struct gp_job *j);

/* Paths and labels need not be UTF-8, JSON has to be: bytes that are not become '?'. */
json_t *gp_job_text_json(const char *text);
/* Prints `object` as one line on standard output; takes it. NULL (jansson out of memory) is an error. */
enum gp_status gp_job_print_json(json_t *object, struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient bench: trainings over a list of links, cuts, numbers of chunks and codecs, one after another, and a table of
 * what each has cost, with what `gpclient plan` predicts beside it. Options and the order of things; a row is run by
 * bench_child.h, read by bench_figures.h, kept by bench_results.h, shown by bench_table.h. Test: tests/e2e/bench.sh
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/bench_figures.h"
#include "client/bench/bench_predict.h"
#include "client/bench/bench_table.h"
#include "client/commands/bench_child.h"
#include "client/commands/bench_words.h"
#include "client/commands/commands.h"
#include "client/commands/stop_signal.h"
#include "client/commands/train_options.h"
#include "client/job/job.h"
#include "client/link/link_pace.h"
#include "client/log/progress.h"
#include "client/plan/plan_site.h"
#include "common/base/clock.h"
#include "common/base/durable.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/net/conn.h"

#define PROGRAM "gpclient bench"

#define PLAIN_PROGRESS_S 5
#define PLAIN_WAIT_S     30 /* from one line to the next about a row that runs, where standard error is no terminal */

#define USUAL_CODECS "raw,fp16,uniform:bits=8,sortquant:bits=6,split=2"
#define USUAL_CHUNKS "1,8"
#define USUAL_LINKS  GP_BENCH_AS_IS ",1gbit,100mbit/10ms"

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *cuts, *chunks, *codecs, *links, *results;
	int64_t steps, skip, rounds, epochs;
	double plan_seconds, lr, momentum, clip_norm;
	bool predict;
	int optimizer, same_machine; /* enum gp_plan_same_machine */
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt sweep_rows[] = {
	{.name = "codecs",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codecs),
	 .value = "A,B,...",
	 .initial = USUAL_CODECS,
	 .group = "What is compared",
	 .help = "codecs of all four directions, separated by commas, semicolons or spaces; speed-ups are against raw, "
		 "where it is one of them"},
	{.name = "cut",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(cuts),
	 .value = "H:T,...",
	 .initial = GP_JOB_CUT,
	 .help = "where the model is divided, as for train (see 'gpclient model show')"},
	{.name = "chunks",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(chunks),
	 .value = "N,...",
	 .initial = USUAL_CHUNKS,
	 .help = "into how many chunks a batch is cut"},
	{.name = "links",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(links),
	 .value = "LINK,...",
	 .initial = USUAL_LINKS,
	 .help = GP_BENCH_AS_IS
	 ": the link that is there; RATE[/DELAY[/DOWN]]: one that is simulated in this process, as by "
	 "'gpclient link --listen', with the delay each way (or rtt=40ms): 100mbit/20ms. Rates that it cannot "
	 "carry, above about 1gbit, want tc and deploy/link.sh with " GP_BENCH_AS_IS},
	{.name = "steps",
	 .like = &gp_train_rows,
	 .offset = FIELD(steps),
	 .initial = "12",
	 .min = 2,
	 .max = 1e6,
	 .help = "steps of each run"},
	{.name = "skip",
	 .type = GP_OPT_INT,
	 .offset = FIELD(skip),
	 .value = "N",
	 .initial = "2",
	 .min = 0,
	 .max = 1e6,
	 .help = "first steps of each run that warm everything up and do not count"},
	{.name = "rounds",
	 .type = GP_OPT_INT,
	 .offset = FIELD(rounds),
	 .value = "N",
	 .initial = "1",
	 .min = 1,
	 .max = 1000,
	 .help = "run every row so often, forwards and backwards by turns, so that a machine that slows down favours "
		 "no row; the middle one counts. May grow from one start to the next"},
	{.name = "train",
	 .type = GP_OPT_INT,
	 .offset = FIELD(epochs),
	 .value = "EPOCHS",
	 .initial = "0",
	 .min = 0,
	 .max = 1 << 20,
	 .help = "train so many epochs in place of --steps, for a column with validation accuracy; 0 = do not"},
	{.name = "results",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(results),
	 .value = "FILE",
	 .help = "keep every run there, as JSON lines; the same command goes on where it was stopped, runs what has "
		 "failed again, and adds what the lists have more. A file of other settings is refused"},
	{.name = "predict",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(predict),
	 .initial = "true",
	 .help = "measure first what 'gpclient plan' does, and show its predictions (--no-predict: off)"},
	{.name = "plan-time",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(plan_seconds),
	 .value = "TIME",
	 .initial = "1s",
	 .min = 0.01,
	 .max = 3600,
	 .help = "for predictions, compute about so long for each number of chunks"},
	{.name = "same-machine",
	 .like = &gp_plan_same_machine_rows,
	 .offset = FIELD(same_machine),
	 .help = "for predictions: whether both ends share the processors of this machine; auto: yes where --server is "
		 "on loopback"},
	{.name = "optimizer",
	 .like = &gp_train_rows,
	 .offset = FIELD(optimizer),
	 .group = "Training (other options of 'gpclient train' follow behind --)"},
	{.name = "lr", .like = &gp_train_rows, .offset = FIELD(lr)},
	{.name = "momentum", .like = &gp_train_rows, .offset = FIELD(momentum), .help = "of --optimizer sgd"},
	{.name = "clip-norm",
	 .like = &gp_train_rows,
	 .offset = FIELD(clip_norm),
	 .help = "as for train: a step then waits for the norm of the server's gradients; 0 = off"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--server HOST:PORT --model NAME --data NAME [--codecs A,B] [--cut H:T,...] [--chunks 1,8] "
		    "[--links LINK,...]\n           [OPTION...] [-- TRAIN-OPTION...]",
	.about = "Trains a few steps with every combination of codec, cut, number of chunks and link in the lists,\n"
		 "one after another, on a real server. Prints for each: payload bytes divided by uncompressed\n"
		 "bytes (rate), accuracy (--train), bytes received per second, the time of a batch that this side\n"
		 "spent computing, encoding, on the wire, waiting and decoding, the time of the whole batch\n"
		 "(median and lowest), how much faster than raw it is, and what 'gpclient plan' predicts. Times\n"
		 "overlap: they do not add up to the total.\n"
		 "A row that fails is noted, and the others go on; the exit status is then 1.",
	.examples =
		"  gpclient bench --server 192.0.2.7:4400 --model mobilenetv2 --data synthetic --results bench.jsonl\n"
		"  gpclient bench --server 127.0.0.1:4400 --model cnn --data fashion-mnist --links 1gbit,100mbit/20ms "
		"\\\n"
		"      --codecs raw,uniform:bits=8 --cut 1:-1,1:-2 --train 2 --results cnn.jsonl -- --schedule const\n",
	.positional = "TRAIN-OPTION",
};

struct bench {
	struct settings set;
	struct gp_options_result given;
	struct gp_opt rows[GP_OPT_MAX];
	struct gp_opt_table table;
	struct gp_bench_sweep sweep;
	struct gp_bench_results results;
	struct gp_optim optim;
	struct gp_progress progress;
	struct gp_bench_words words;     /* of every row's command line */
	char folder[256];                /* of the rows' logs; "": there is none */
	int ran;                         /* in this process */
	int failed;                      /* rounds of rows, in this process */
	char row[2 * GP_BENCH_KEY_TEXT]; /* that runs: what the progress line calls it */
	double told_s;                   /* seconds into that row at the last line about it */
};

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Rows of train that a bench has as lists, or that have no meaning there. */
static int leave_out(struct gp_opt *rows, int count)
{
	static const char *const replaced[] = {"local", "cut", "chunks", NULL};
	int kept = 0;
	for (int i = 0; i < count; i++) {
		const bool own = i < (int)(sizeof sweep_rows / sizeof sweep_rows[0]);
		if (own || !gp_bench_is_one_of(rows[i].name, replaced))
			rows[kept++] = rows[i];
	}
	return kept;
}

static enum gp_status parse(struct bench *b, int argc, char **argv, struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(sweep_rows), gp_job_where_rows,    gp_job_model_rows,
					    gp_job_freeze_rows,      gp_job_batch_rows,    gp_job_insert_rows,
					    gp_job_memory_rows,      gp_job_security_rows, gp_job_output_rows,
					    gp_job_progress_rows};
	b->table = table;
	b->table.opt = b->rows;
	b->table.count = leave_out(b->rows, gp_opt_join(parts, sizeof parts / sizeof parts[0], b->rows));
	return gp_options_parse(&b->table, argc, argv, &b->set, &b->given, err);
}

static bool is_simulated(const struct gp_bench_sweep *s)
{
	for (int i = 0; i < s->links; i++)
		if (!s->link[i].as_is)
			return true;
	return false;
}

/* What the relay holds on a full way, for predictions: its queue, and half as much in the socket that it reads from. */
static double queue_of(const struct gp_plan_way *way)
{
	const struct gp_link_shape shape = {.rate_bps = way->bytes_per_s * 8};
	return 1.5 * (double)gp_link_pace_queue_bytes(&shape);
}

static void set_queues(struct gp_bench_sweep *s)
{
	for (int i = 0; i < s->links; i++) {
		struct gp_plan_link *l = &s->link[i].shape;
		if (l->up.bytes_per_s > 0 && l->up.queue_bytes == 0)
			l->up.queue_bytes = queue_of(&l->up);
		if (l->down.bytes_per_s > 0 && l->down.queue_bytes == 0)
			l->down.queue_bytes = queue_of(&l->down);
	}
}

/* A simulated link begins on loopback, where train would send a token without TLS, whatever lies behind. */
static enum gp_status check_server(struct bench *b, struct gp_err *err)
{
	const struct gp_job_settings *j = &b->set.job;
	char host[256];
	uint16_t port;
	if (!j->server)
		GP_FAIL(err, GP_USAGE, "--server HOST:PORT is missing: the gpserverd to measure with");
	if (gp_addr_parse_remote(j->server, host, &port, err) != GP_OK)
		return gp_err_prefix(err, "--server");
	if (j->security.token && !j->security.tls && !j->security.ca && !gp_addr_is_loopback(host) &&
	    is_simulated(&b->sweep))
		GP_FAIL(err, GP_USAGE,
			"--token-file: the token would cross the link to %s in the clear; add --tls or --tls-ca",
			j->server);
	return GP_OK;
}

static enum gp_status check(struct bench *b, struct gp_err *err)
{
	struct settings *s = &b->set;
	GP_TRY(gp_bench_words_check(&b->table, &b->given, err));
	GP_TRY(gp_bench_read_codecs(&b->sweep, s->codecs, err));
	GP_TRY(gp_bench_read_cuts(&b->sweep, s->cuts, err));
	GP_TRY(gp_bench_read_chunks(&b->sweep, s->chunks, s->job.batch, err));
	GP_TRY(gp_bench_read_links(&b->sweep, s->links, err));
	set_queues(&b->sweep);
	GP_TRY(check_server(b, err));
	if (s->epochs == 0 && s->skip >= s->steps)
		GP_FAIL(err, GP_USAGE, "--skip %lld leaves none of the %lld steps of a run", (long long)s->skip,
			(long long)s->steps);
	if (s->optimizer != GP_OPTIM_SGD && gp_options_given(&b->table, &b->given, "momentum"))
		GP_FAIL(err, GP_USAGE, "--momentum is of --optimizer sgd");
	if (s->job.precision == GP_PRECISION_AUTO)
		GP_FAIL(err, GP_USAGE,
			"--precision auto may choose another one for each row; name one, as 'gpclient train "
			"--precision auto' tells it");
	b->optim = gp_plan_optim_of(s->optimizer, s->momentum, s->clip_norm);
	return gp_optim_check(&b->optim, err);
}

/* --- what all rows share ------------------------------------------------------------------------------------------ */

static enum gp_status open_results(struct bench *b, struct gp_err *err)
{
	json_t *settings = gp_bench_words_settings(&b->table, &b->set.job, &b->given);
	const enum gp_status status = gp_bench_results_open(&b->results, b->set.results, settings, err);
	json_decref(settings);
	return status;
}

static enum gp_status make_folder(struct bench *b, struct gp_err *err)
{
	const char *tmp = getenv("TMPDIR");
	char path[sizeof b->folder];
	const int n = snprintf(path, sizeof path, "%s/gpclient-bench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (n >= (int)sizeof path || !mkdtemp(path))
		return gp_fail_os(err, GP_IO, "make a folder for the logs of the rows:", path);
	memcpy(b->folder, path, sizeof path);
	return GP_OK;
}

/* --- predictions -------------------------------------------------------------------------------------------------- */

/* Whether a row of this cut has still to run in some round, and whether all of them have a prediction: a row that runs again
 * has its prediction made again, too, where that has failed. */
static void look_at_cut(const struct bench *b, int cut, bool *runs, bool *predicted)
{
	*runs = false;
	*predicted = true;
	for (int row = 0; row < gp_bench_count(&b->sweep); row++) {
		struct gp_bench_key key;
		if (gp_bench_place_of(&b->sweep, row).cut != cut)
			continue;
		gp_bench_key_of(&b->sweep, row, &key);
		const struct gp_bench_prediction *p = gp_bench_results_predicted(&b->results, &key);
		bool left = false;
		for (int round = 1; round <= b->set.rounds; round++)
			left = left || !gp_bench_results_done(&b->results, &key, round);
		*runs = *runs || left;
		*predicted = *predicted && p && !(left && p->why[0]);
	}
}

static enum gp_status predict(struct bench *b, struct gp_err *err)
{
	struct gp_bench_predict_spec spec = {.job = &b->set.job,
					     .optim = b->optim,
					     .sweep = &b->sweep,
					     .seconds = b->set.plan_seconds,
					     .same_machine = b->set.same_machine,
					     .progress = &b->progress,
					     .stop = &gp_stop_signal};
	for (int cut = 0; cut < b->sweep.cuts && !gp_stop_signal; cut++) {
		bool runs, predicted;
		look_at_cut(b, cut, &runs, &predicted);
		spec.measure = b->set.predict && !predicted;
		if (!runs && !spec.measure)
			continue;
		if (gp_bench_predict_cut(&spec, cut, &b->results, err) != GP_OK)
			return b->sweep.cuts > 1 ? gp_err_prefix(err, "cut %s", b->sweep.cut[cut]) : err->code;
	}
	return GP_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* What one row's command line has of its own. */
struct own_words {
	char cut[64], codec[GP_CODEC_SPEC_MAX + 16], chunks[32], length[40], log[320], said[320];
};

static void fill_words(const struct bench *b, const struct gp_bench_key *key, struct own_words *w)
{
	const struct settings *s = &b->set;
	snprintf(w->cut, sizeof w->cut, "--cut=%s", key->cut);
	snprintf(w->codec, sizeof w->codec, "--codec=%s", key->codec);
	snprintf(w->chunks, sizeof w->chunks, "--chunks=%d", key->chunks);
	if (s->epochs > 0)
		snprintf(w->length, sizeof w->length, "--epochs=%lld", (long long)s->epochs);
	else
		snprintf(w->length, sizeof w->length, "--steps=%lld", (long long)s->steps);
	snprintf(w->log, sizeof w->log, "%s/log.jsonl", b->folder);
	snprintf(w->said, sizeof w->said, "%s/said", b->folder);
}

/* While a row runs: how long it has, and what its training has warned of, as that it waits for the server. */
static void tell_wait(void *arg, double seconds, const char *warning)
{
	struct bench *b = arg;
	char text[sizeof b->row + GP_ERR_TEXT];
	if (!b->progress.in_place && seconds - b->told_s < PLAIN_WAIT_S)
		return;
	b->told_s = seconds;
	snprintf(text, sizeof text, "%s, %.0f s%s%s", b->row, seconds, *warning ? "; " : "", warning);
	gp_progress_update(&b->progress, gp_now_ns(), text);
}

static enum gp_status run_child(struct bench *b, const struct gp_bench_link *link, const struct own_words *w,
				struct gp_err *err)
{
	const char *argv[GP_BENCH_ARGS] = {"train"};
	const struct gp_bench_child child = {.server = b->set.job.server,
					     .link = link,
					     .connect_timeout_s = b->set.job.connect_timeout_s,
					     .argv = argv,
					     .said = w->said,
					     .stop = &gp_stop_signal,
					     .wait = tell_wait,
					     .arg = b};
	int n = 1;
	for (int i = 0; i < b->words.count; i++)
		argv[n++] = b->words.word[i];
	argv[n++] = w->cut;
	argv[n++] = w->codec;
	argv[n++] = w->chunks;
	argv[n++] = w->length;
	argv[n++] = "--no-progress";
	argv[n++] = "--log-json";
	argv[n++] = w->log;
	if (b->set.epochs == 0)
		argv[n++] = "--no-eval";
	unlink(w->log);
	return gp_bench_child_run(&child, err);
}

static enum gp_status note_failure(struct bench *b, struct gp_bench_run *run, const struct gp_err *why,
				   struct gp_err *err)
{
	char text[GP_BENCH_KEY_TEXT];
	gp_progress_clear(&b->progress);
	fprintf(stderr, "failed: %s: %s\n", gp_bench_key_text(&run->key, text), why->text);
	snprintf(run->why, sizeof run->why, "%s", why->text[0] ? why->text : "no reason is known");
	b->failed++;
	return gp_bench_results_add_run(&b->results, run, err);
}

/* A command line that train refuses at once is most likely refused for every row. */
static enum gp_status run_row(struct bench *b, int row, int round, struct gp_err *err)
{
	struct gp_bench_run run = {.round = round};
	struct gp_err why = {0};
	struct own_words w;
	gp_bench_key_of(&b->sweep, row, &run.key);
	fill_words(b, &run.key, &w);
	enum gp_status status = run_child(b, &b->sweep.link[gp_bench_place_of(&b->sweep, row).link], &w, &why);
	if (status == GP_OK)
		status = gp_bench_figures_read(w.log, (int)b->set.skip, &run, &why);
	if (status == GP_CANCELED || gp_stop_signal)
		return GP_OK;
	if (status == GP_OK) {
		b->ran++;
		return gp_bench_results_add_run(&b->results, &run, err);
	}
	if (status == GP_USAGE && b->ran + b->failed == 0) {
		*err = why;
		return status;
	}
	return note_failure(b, &run, &why, err);
}

/* Every row is named, however soon after the one before it begins. */
static void tell_row(struct bench *b, int round, int turn, const struct gp_bench_key *key)
{
	char name[GP_BENCH_KEY_TEXT], of[32] = "";
	if (b->set.rounds > 1)
		snprintf(of, sizeof of, "round %d, ", round);
	snprintf(b->row, sizeof b->row, "%srow %d of %d: %s", of, turn + 1, gp_bench_count(&b->sweep),
		 gp_bench_key_text(key, name));
	b->told_s = 0;
	b->progress.shown = false;
	gp_progress_update(&b->progress, gp_now_ns(), b->row);
}

static enum gp_status run_rows(struct bench *b, struct gp_err *err)
{
	const int rows = gp_bench_count(&b->sweep);
	for (int round = 1; round <= b->set.rounds; round++)
		for (int turn = 0; turn < rows && !gp_stop_signal; turn++) {
			const int row = gp_bench_turn(rows, round, turn);
			struct gp_bench_key key;
			gp_bench_key_of(&b->sweep, row, &key);
			if (gp_bench_results_done(&b->results, &key, round))
				continue;
			tell_row(b, round, turn, &key);
			GP_TRY(run_row(b, row, round, err));
		}
	return GP_OK;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static json_t *head_json(const struct bench *b, json_t *o)
{
	const struct settings *s = &b->set;
	json_object_set_new(o, "server", gp_job_text_json(s->job.server));
	json_object_set_new(o, "model", s->job.model ? gp_job_text_json(s->job.model) : json_null());
	json_object_set_new(o, "data", gp_job_text_json(s->job.data));
	json_object_set_new(o, "batch", json_integer(s->job.batch));
	json_object_set_new(o, "steps_per_run", s->epochs > 0 ? json_null() : json_integer(s->steps));
	json_object_set_new(o, "epochs", s->epochs > 0 ? json_integer(s->epochs) : json_null());
	json_object_set_new(o, "rounds", json_integer(s->rounds));
	json_object_set_new(o, "recompute", json_boolean(s->job.recompute));
	json_object_set_new(o, "compress", s->job.compress ? gp_job_text_json(s->job.compress) : json_null());
	json_object_set_new(o, "failed", json_integer(b->failed));
	json_object_set_new(o, "stopped", json_boolean(gp_stop_signal != 0));
	return o;
}

static void print_title(const struct bench *b)
{
	const struct settings *s = &b->set;
	printf("%s, data %s, batch %lld, server %s%s%s%s; ", s->job.model ? s->job.model : s->job.init, s->job.data,
	       (long long)s->job.batch, s->job.server, s->job.recompute ? ", --recompute" : "",
	       s->job.compress ? ", --compress " : "", s->job.compress ? s->job.compress : "");
	if (s->epochs > 0)
		printf("%lld epoch%s", (long long)s->epochs, s->epochs == 1 ? "" : "s");
	else
		printf("%lld steps", (long long)s->steps);
	printf(" a run, of which the first %lld do not count; %lld round%s\n\n", (long long)s->skip,
	       (long long)s->rounds, s->rounds == 1 ? "" : "s");
}

static enum gp_status report(const struct bench *b, struct gp_err *err)
{
	struct gp_bench_table t;
	GP_TRY(gp_bench_table_make(&b->sweep, &b->results, (int)b->set.rounds, &t, err));
	enum gp_status status = GP_OK;
	if (b->set.job.json) {
		status = gp_job_print_json(head_json(b, gp_bench_table_json(&b->sweep, &t)), err);
	} else {
		print_title(b);
		gp_bench_table_print(&t, stdout);
		printf("\n");
		gp_bench_chunks_print(&b->sweep, &t, stdout);
	}
	gp_bench_table_deinit(&t);
	return status;
}

static enum gp_status end(const struct bench *b, struct gp_err *err)
{
	const char *again = b->set.results ? "; the same command goes on from there" : "";
	GP_TRY(report(b, err));
	if (gp_stop_signal)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal; %d run%s ended before%s", b->ran,
			b->ran == 1 ? "" : "s", again);
	if (b->failed > 0)
		GP_FAIL(err, GP_INTERNAL, "%d run%s failed%s", b->failed, b->failed == 1 ? "" : "s",
			b->set.results ? "; the same command tries again" : "");
	return GP_OK;
}

static enum gp_status bench(struct bench *b, struct gp_err *err)
{
	GP_TRY(gp_log_configure(b->set.job.log, err));
	GP_TRY(check(b, err));
	GP_TRY(gp_bench_words_make(&b->words, &b->table, &b->set.job, &b->given, err));
	GP_TRY(open_results(b, err));
	gp_progress_init(&b->progress, b->set.job.progress ? stderr : NULL, PLAIN_PROGRESS_S);
	gp_stop_watch();
	enum gp_status status = predict(b, err);
	if (gp_stop_signal) /* what it could not end for that is no error of its own */
		status = GP_OK;
	GP_TRY(status);
	GP_TRY(make_folder(b, err));
	GP_TRY(run_rows(b, err));
	gp_progress_clear(&b->progress);
	return end(b, err);
}

static void clean_up(struct bench *b)
{
	struct gp_err ignored;
	gp_progress_clear(&b->progress);
	if (b->folder[0])
		gp_remove_folder(b->folder, &ignored);
	gp_bench_results_close(&b->results);
	gp_bench_words_deinit(&b->words);
	gp_options_free(&b->given);
}

int gp_cmd_bench(int argc, char **argv)
{
	static struct bench b;
	struct gp_err err = {0};
	b.results.fd = -1;
	enum gp_status status = parse(&b, argc, argv, &err);
	if (status == GP_OK && !b.given.help)
		status = bench(&b, &err);
	clean_up(&b);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	return gp_stop_exit(status);
}

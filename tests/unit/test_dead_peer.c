/* SPDX-License-Identifier: Apache-2.0
 *
 * A link or a peer that dies: {stall, half-open, reset, orderly end, SIGSTOP}
 * in every phase of a session. Nobody hangs, a closed socket is noticed as such,
 * long before any deadline, and a silent one by the deadline, on both sides, and
 * the server has lost nothing but that session. Once with ends that give up, and once with ends that
 * come back (PROTOCOL.md sections 3.3, 5.4 and 5.6): then the steps are those of
 * an undisturbed run.
 *
 * Both sides are processes of their own (a stopped one must not stop the test),
 * the real server and the real client; the link emulator between them fails in
 * the middle of the record that the phase is about. Where that lies is taken
 * from a recorded run. Processes are forked by a helper that never had threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/engine/engine_split.h"
#include "common/base/log.h"
#include "client/models/models.h"
#include "server/server.h"
#include "tests/unit/link_thread.h"
#include "tests/unit/picture_batch.h"

#define DEADLINE_S   0.6   /* of everything, on both sides, where a peer falls silent */
#define NO_DEADLINE  600.0 /* where it hangs up */
#define PATIENCE_S   600.0  /* then it hangs */
#define TRIES        6     /* of a trial that tells nothing; each has twice the time of the last */
#define STOP_STALL_S 0.1   /* the link holds still while a process is stopped */
#define CELLS        8     /* as many as phases */
#define BATCH        4
#define STEPS        3

enum phase {
	PHASE_HANDSHAKE,
	PHASE_OPEN,
	PHASE_ACT_UP,
	PHASE_ACT_DOWN,
	PHASE_GRAD_UP,
	PHASE_GRAD_DOWN,
	PHASE_COMMIT,
	PHASE_IDLE,
	PHASES
};

static const char *const phase_names[PHASES] = {"handshake", "open",      "act-up", "act-down",
						"grad-up",   "grad-down", "commit", "idle"};

/* One client, one server and the link between them; in memory that all processes share. */
struct cell {
	char server_address[32], client_to[32];
	bool idle;       /* the client opens a session and waits */
	bool comes_back; /* a broken link is no end */
	double deadline_s;
	atomic_int server_pid, client_pid;
	atomic_int sessions_seen, sessions, server_stop, server_done;
	_Atomic uint64_t sessions_gone_ns, client_ended_ns;
	atomic_int client_done;
	enum gp_status client_status;
	char client_text[GP_ERR_TEXT], client_sha256[65];
};

static struct cell *cells; /* CELLS */
static int to_helper;

/* The server's process. */

struct server_process {
	struct cell *cell;
	uv_loop_t loop;
	uv_timer_t timer;
	uv_prepare_t prepare;
	struct gp_server server;
};

static void publish(uv_prepare_t *prepare)
{
	struct server_process *p = prepare->data;
	const int now = p->server.link_count, before = atomic_exchange(&p->cell->sessions, now);
	if (now > 0)
		atomic_store(&p->cell->sessions_seen, 1);
	if (now == 0 && before > 0)
		atomic_store(&p->cell->sessions_gone_ns, uv_hrtime());
}

static void server_stopped(void *arg)
{
	struct server_process *p = arg;
	const bool clean = p->server.link_count == 0 && p->server.memory_used_bytes == 0;
	uv_close((uv_handle_t *)&p->timer, NULL);
	uv_close((uv_handle_t *)&p->prepare, NULL);
	gp_server_deinit(&p->server);
	atomic_store(&p->cell->server_done, clean ? 1 : -1);
}

static void look_for_stop(uv_timer_t *timer)
{
	struct server_process *p = timer->data;
	if (!atomic_load(&p->cell->server_stop))
		return;
	uv_timer_stop(timer);
	gp_server_stop(&p->server, server_stopped, p);
}

static void server_main(struct cell *cell)
{
	static struct server_process p;
	struct gp_err err = {0};
	const struct gp_server_settings set = {.listen = "127.0.0.1:0",
					       .device = "cpu",
					       .threads = 1,
					       .codec_threads = 1,
					       .max_sessions = 4,
					       .max_unopened = 16,
					       .session_memory_bytes = 256 << 20,
					       .window = 8,
					       .task_time_s = 600,
					       .handshake_timeout_s = cell->deadline_s,
					       .step_timeout_s = 2 * NO_DEADLINE,
					       .resume_window_s = cell->comes_back ? 60 : 0,
					       .idle_timeout_s = cell->deadline_s};
	p.cell = cell;
	uv_loop_init(&p.loop);
	if (gp_log_configure("all=error", &err) != GP_OK || gp_server_start(&p.server, &p.loop, &set, &err) != GP_OK)
		_exit(1);
	uv_timer_init(&p.loop, &p.timer);
	uv_prepare_init(&p.loop, &p.prepare);
	p.timer.data = p.prepare.data = &p;
	uv_prepare_start(&p.prepare, publish);
	uv_timer_start(&p.timer, look_for_stop, 5, 5);
	snprintf(cell->server_address, sizeof cell->server_address, "127.0.0.1:%u", gp_server_port(&p.server));
	atomic_store(&cell->server_pid, getpid());
	uv_run(&p.loop, UV_RUN_DEFAULT);
	_exit(0);
}

/* The client's process. */

static enum gp_status run_steps(struct gp_engine *engine, const struct gp_graph *graph, struct gp_err *err)
{
	struct gp_step_result result;
	int32_t labels[BATCH] = {0, 1, 2, 3};
	float *images = gp_calloc(BATCH * gp_shape_elements(gp_graph_input_shape(graph)), sizeof *images);
	const struct gp_batch batch = picture_batch(images, gp_graph_input_shape(graph), labels, NULL, BATCH);
	for (int step = 0; step < STEPS; step++)
		GP_TRY(engine->ops->step(engine, &batch, NULL, 0.1f, &result, err));
	gp_free(images);
	return GP_OK;
}

/* On a failure the process ends: nobody waits for a farewell. */
static enum gp_status use_engine(struct gp_engine *engine, struct cell *cell, struct gp_err *err)
{
	static const bool never = false;
	struct gp_weights *weights;
	if (cell->idle)
		return gp_client_session_wait_here(&((struct split_engine *)engine)->session, &never, err);
	GP_TRY(run_steps(engine, engine->spec.graph, err));
	GP_TRY(gp_weights_new(engine->spec.graph, &weights, err));
	GP_TRY(engine->ops->get_weights(engine, weights, err));
	GP_TRY(gp_weights_sha256(weights, cell->client_sha256, err));
	engine->ops->free(engine);
	return GP_OK;
}

static enum gp_status run_client(struct cell *cell, struct gp_err *err)
{
	const struct gp_model_options model = {.classes = 10};
	struct gp_graph *graph;
	struct gp_engine *engine;
	GP_TRY(gp_model_build("cnn", &model, &graph, err));
	struct gp_engine_spec spec = {.graph = graph,
				      .device = "cpu",
				      .threads = 1,
				      .session.chunk_samples = BATCH / 1,
				      .session.chunks = 1,
				      .session.window = 1,
				      .server = cell->client_to,
				      .cut = {.head = 1, .tail = graph->blocks - 1},
				      .connect_timeout_s = cell->deadline_s,
				      .idle_timeout_s = cell->deadline_s,
				      .reconnect_for_s = cell->comes_back ? 60 : 0};
	for (int i = 0; i < 4; i++)
		GP_TRY(gp_codec_spec_parse("raw", &spec.session.codec[i], err));
	GP_TRY(gp_engine_new_split(&spec, &engine, err));
	return use_engine(engine, cell, err);
}

static void client_main(struct cell *cell)
{
	struct gp_err err = {0};
	atomic_store(&cell->client_pid, getpid());
	cell->client_status = run_client(cell, &err);
	atomic_store(&cell->client_ended_ns, uv_hrtime());
	snprintf(cell->client_text, sizeof cell->client_text, "%s", err.text);
	atomic_store(&cell->client_done, 1);
	_exit(0);
}

/* The helper, which has no threads: a byte says which cell's server or client to begin. */

enum { BEGIN_SERVER = 0, BEGIN_CLIENT = 0x80 };

static void helper_main(int from_test)
{
	unsigned char what;
	signal(SIGCHLD, SIG_IGN);
	while (read(from_test, &what, 1) == 1)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (what & BEGIN_CLIENT)
				client_main(&cells[what & ~BEGIN_CLIENT]);
			server_main(&cells[what]);
		}
	_exit(0);
}

static void start_helper(void)
{
	int ends[2];
	cells = mmap(NULL, CELLS * sizeof *cells, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (cells == MAP_FAILED || pipe(ends) != 0)
		_exit(1);
	const pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[1]);
		helper_main(ends[0]);
	}
	close(ends[0]);
	to_helper = ends[1];
}

static void ask_helper(int what, int cell)
{
	const unsigned char byte = (unsigned char)(what | cell);
	assert_int_equal(write(to_helper, &byte, 1), 1);
}

static void await(atomic_int *flag, const char *what)
{
	for (double waited = 0; !atomic_load(flag); waited += 1e-3) {
		if (waited > PATIENCE_S)
			fail_msg("hangs: %s", what);
		usleep(1000);
	}
}

static void ask_for_server(int number, bool comes_back, double deadline_s)
{
	memset(&cells[number], 0, sizeof cells[number]);
	cells[number].comes_back = comes_back;
	cells[number].deadline_s = deadline_s;
	ask_helper(BEGIN_SERVER, number);
}

static void await_server(int number)
{
	await(&cells[number].server_pid, "the server does not start");
}

static void end_server(int number)
{
	atomic_store(&cells[number].server_stop, 1);
	await(&cells[number].server_done, "the server does not stop");
	assert_int_equal(atomic_load(&cells[number].server_done), 1);
}

/* Where the phases are: a run without faults, recorded. */

struct stream {
	pthread_t thread;
	int from, to;
	uint8_t *bytes;
	size_t len;
};

#define STREAM_BYTES (4u << 20)

static void *record_main(void *arg)
{
	struct stream *s = arg;
	ssize_t n;
	while (s->len < STREAM_BYTES && (n = recv(s->from, s->bytes + s->len, STREAM_BYTES - s->len, 0)) > 0) {
		if (send(s->to, s->bytes + s->len, (size_t)n, MSG_NOSIGNAL) != n)
			break;
		s->len += (size_t)n;
	}
	shutdown(s->to, SHUT_WR);
	return NULL;
}

static struct sockaddr_in loopback(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (address)
		a.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
	return a;
}

/* Both directions of a session of cell 0. */
static void record(bool comes_back, struct stream stream[2])
{
	struct sockaddr_in a = loopback(NULL);
	socklen_t len = sizeof a;
	ask_for_server(0, comes_back, NO_DEADLINE);
	await_server(0);
	const int listener = socket(AF_INET, SOCK_STREAM, 0), far = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	snprintf(cells[0].client_to, sizeof cells[0].client_to, "127.0.0.1:%u", ntohs(a.sin_port));
	ask_helper(BEGIN_CLIENT, 0);
	const int near = accept(listener, NULL, NULL);
	a = loopback(cells[0].server_address);
	assert_int_equal(connect(far, (struct sockaddr *)&a, sizeof a), 0);
	stream[GP_LINK_UP] = (struct stream){.from = near, .to = far};
	stream[GP_LINK_DOWN] = (struct stream){.from = far, .to = near};
	for (int d = 0; d < 2; d++) {
		stream[d].bytes = gp_calloc(STREAM_BYTES, 1);
		assert_int_equal(pthread_create(&stream[d].thread, NULL, record_main, &stream[d]), 0);
	}
	for (int d = 0; d < 2; d++)
		pthread_join(stream[d].thread, NULL);
	close(near);
	close(far);
	close(listener);
	if (cells[0].client_status != GP_OK)
		fail_msg("the recorded run: %s", cells[0].client_text);
	end_server(0);
}

static bool is_control(const struct gp_record_head *h, const uint8_t *body, Gpsplit__Control__BodyCase wanted)
{
	if (h->kind != GP_RECORD_CONTROL)
		return false;
	Gpsplit__Control *m = gpsplit__control__unpack(NULL, h->len, body);
	assert_non_null(m);
	const bool found = m->body_case == wanted;
	gpsplit__control__free_unpacked(m, NULL);
	return found;
}

static bool is_frame(const struct gp_record_head *h, const uint8_t *body, enum gp_frame_type wanted)
{
	struct gp_frame_head f;
	struct gp_err err;
	if (h->kind != GP_RECORD_SEGMENT || !(h->flags & GP_SEGMENT_FIRST))
		return false;
	assert_int_equal(gp_frame_head_read(body, &f, &err), GP_OK);
	return f.type == wanted;
}

/* The first record with this control message or, where `frame` is not 0, of this frame: *begin to *end. */
static void find(const struct stream *s, Gpsplit__Control__BodyCase control, int frame, size_t *begin, size_t *end)
{
	struct gp_record_head h;
	struct gp_err err;
	for (size_t at = GP_PREFACE_BYTES; at + GP_RECORD_HEADER_BYTES <= s->len;) {
		assert_int_equal(gp_record_head_read(s->bytes + at, &h, &err), GP_OK);
		const uint8_t *body = s->bytes + at + GP_RECORD_HEADER_BYTES;
		*begin = at;
		*end = at += GP_RECORD_HEADER_BYTES + h.len;
		assert_true(at <= s->len);
		if (frame ? is_frame(&h, body, (enum gp_frame_type)frame) : is_control(&h, body, control))
			return;
	}
	fail_msg("no record of control %d, frame %d", (int)control, frame);
}

struct place {
	enum gp_link_direction direction;
	uint64_t bytes; /* that pass before the fault */
};

static struct place places[2][PHASES]; /* by comes_back */
static char undisturbed_sha256[65];

static void find_place(enum phase phase, const struct stream stream[2], struct place *out)
{
	static const struct {
		enum gp_link_direction direction;
		Gpsplit__Control__BodyCase control;
		int frame;
	} record_of[PHASES] = {
		[PHASE_HANDSHAKE] = {GP_LINK_UP, GPSPLIT__CONTROL__BODY_HELLO, 0},
		[PHASE_OPEN] = {GP_LINK_UP, GPSPLIT__CONTROL__BODY_OPEN, 0},
		[PHASE_ACT_UP] = {GP_LINK_UP, GPSPLIT__CONTROL__BODY__NOT_SET, GP_FRAME_ACT_UP},
		[PHASE_ACT_DOWN] = {GP_LINK_DOWN, GPSPLIT__CONTROL__BODY__NOT_SET, GP_FRAME_ACT_DOWN},
		[PHASE_GRAD_UP] = {GP_LINK_UP, GPSPLIT__CONTROL__BODY__NOT_SET, GP_FRAME_GRAD_UP},
		[PHASE_GRAD_DOWN] = {GP_LINK_DOWN, GPSPLIT__CONTROL__BODY__NOT_SET, GP_FRAME_GRAD_DOWN},
		[PHASE_COMMIT] = {GP_LINK_UP, GPSPLIT__CONTROL__BODY_COMMIT, 0},
		[PHASE_IDLE] = {GP_LINK_DOWN, GPSPLIT__CONTROL__BODY_READY, 0},
	};
	size_t begin = 0, end = 0;
	const enum gp_link_direction d = record_of[phase].direction;
	find(&stream[d], record_of[phase].control, record_of[phase].frame, &begin, &end);
	*out = (struct place){.direction = d, .bytes = phase == PHASE_IDLE ? end : (begin + end) / 2};
}

static int find_places(void **state)
{
	(void)state;
	struct stream stream[2];
	for (int comes_back = 0; comes_back < 2; comes_back++) {
		record(comes_back, stream);
		for (int phase = 0; phase < PHASES; phase++)
			find_place((enum phase)phase, stream, &places[comes_back][phase]);
		for (int d = 0; d < 2; d++)
			gp_free(stream[d].bytes);
	}
	memcpy(undisturbed_sha256, cells[0].client_sha256, sizeof undisturbed_sha256);
	return 0;
}

/* Cells. */

enum fault { STALL, HALF, RESET, FIN, STOP_SERVER, STOP_CLIENT };

struct trial {
	struct cell *cell;
	int number;
	enum fault fault;
	enum phase phase;
	bool comes_back;
	double slowness; /* of the machine, as far as is known */
	struct link_thread *link;
	uint64_t fault_ns;
	bool stopped, resumed;
};

static struct gp_link_faults faults_of(enum fault fault, const struct place *place, double slowness)
{
	static const enum gp_link_drop_mode mode[] = {
		[HALF] = GP_LINK_HALF, [RESET] = GP_LINK_RESET, [FIN] = GP_LINK_FIN};
	struct gp_link_faults f = LINK_NO_FAULTS;
	f.direction = place->direction;
	f.times = 1;
	if (fault == HALF || fault == RESET || fault == FIN) {
		f.drop_after = (int64_t)place->bytes;
		f.drop_mode = mode[fault];
	} else {
		f.stall_after = (int64_t)place->bytes;
		f.stall_s = fault == STALL ? 0 : STOP_STALL_S * slowness;
	}
	return f;
}

static bool hangs_up(enum fault fault)
{
	return fault == RESET || fault == FIN;
}

/* In two parts, so that servers of several trials start together. */
static void trial_prepare(struct trial *t, int number, enum fault fault, enum phase phase, bool comes_back,
			  double slowness)
{
	*t = (struct trial){.cell = &cells[number],
			    .number = number,
			    .fault = fault,
			    .phase = phase,
			    .comes_back = comes_back,
			    .slowness = slowness};
	ask_for_server(number, comes_back, hangs_up(fault) ? NO_DEADLINE : DEADLINE_S * slowness);
}

static void trial_begin(struct trial *t)
{
	await_server(t->number);
	const struct gp_link_spec spec = {.to = t->cell->server_address,
					  .faults = faults_of(t->fault, &places[t->comes_back][t->phase], t->slowness)};
	t->link = link_thread_start(&spec);
	t->cell->idle = t->phase == PHASE_IDLE && !t->comes_back;
	snprintf(t->cell->client_to, sizeof t->cell->client_to, "%s", t->link->address);
	ask_helper(BEGIN_CLIENT, t->number);
}

static bool client_ended(const struct trial *t)
{
	return atomic_load(&t->cell->client_done);
}

static bool server_ended(const struct trial *t)
{
	return atomic_load(&t->cell->sessions_seen) && atomic_load(&t->cell->sessions) == 0;
}

/* On a machine so slow that the client's deadlines passed before it was connected: it ends, and no session ever begins. */
static bool never_met(const struct trial *t)
{
	return t->fault_ns == 0 && !atomic_load(&t->cell->sessions_seen) &&
	       (double)(uv_hrtime() - atomic_load(&t->cell->client_ended_ns)) * 1e-9 > 5;
}

/* A client that comes back does not end, and is seen again when the server goes on. */
static bool noticed_stop(const struct trial *t)
{
	if (t->fault == STOP_CLIENT)
		return server_ended(t);
	return t->comes_back ? (double)(uv_hrtime() - t->fault_ns) * 1e-9 > 2 * t->cell->deadline_s : client_ended(t);
}

/* True when both sides have noticed; stops a process when the time has come, and lets it go on when the other has noticed. */
static bool trial_turn(struct trial *t)
{
	const bool stops = t->fault == STOP_SERVER || t->fault == STOP_CLIENT;
	const int victim = atomic_load(t->fault == STOP_SERVER ? &t->cell->server_pid : &t->cell->client_pid);
	if (t->fault_ns == 0)
		t->fault_ns = atomic_load(&t->link->fault_ns);
	if (stops && t->fault_ns && !t->stopped) {
		t->stopped = true;
		t->fault_ns = uv_hrtime();
		kill(victim, SIGSTOP);
	}
	if (t->stopped && !t->resumed && noticed_stop(t)) {
		t->resumed = true;
		kill(victim, SIGCONT);
	}
	return client_ended(t) && (server_ended(t) || never_met(t));
}

static double since_fault_s(const struct trial *t, uint64_t ns)
{
	return ns > t->fault_ns ? (double)(ns - t->fault_ns) * 1e-9 : 0;
}

/* What the client of a fault ended with. The words tell whether a closed socket or a deadline was noticed. */
static void check_end(const struct trial *t)
{
	const enum gp_status status = t->cell->client_status;
	if (t->comes_back && (status != GP_OK || strcmp(t->cell->client_sha256, undisturbed_sha256) != 0))
		fail_msg("%s: the client came back and ended with %s '%s', parameters %s", phase_names[t->phase],
			 gp_status_name(status), t->cell->client_text, t->cell->client_sha256);
	if (!t->comes_back && ((status != GP_PEER && status != GP_TIMEOUT) || !*t->cell->client_text))
		fail_msg("%s: the client ended with %s '%s'", phase_names[t->phase], gp_status_name(status),
			 t->cell->client_text);
	if (!t->comes_back && hangs_up(t->fault) && status != GP_PEER)
		fail_msg("%s: '%s' of a closed socket", phase_names[t->phase], t->cell->client_text);
}

/* The machine is too slow for the deadlines of this trial: the fault came too late, or a peer that lives was given up. */
static bool too_hasty(const struct trial *t)
{
	const enum gp_status status = t->cell->client_status;
	if (t->comes_back)
		return t->fault_ns == 0 || status == GP_TIMEOUT;
	return t->fault_ns == 0 || (t->stopped && status == GP_OK);
}

/* False: the trial tells nothing. */
static bool trial_end(struct trial *t)
{
	link_thread_stop(t->link);
	end_server(t->number);
	if (too_hasty(t))
		return false;
	print_message("         %-10s client %.3f s, server %.3f s: %s\n", phase_names[t->phase],
		      since_fault_s(t, atomic_load(&t->cell->client_ended_ns)),
		      since_fault_s(t, atomic_load(&t->cell->sessions_gone_ns)), t->cell->client_text);
	check_end(t);
	return true;
}

static void await_trials(struct trial *t, int count)
{
	for (double waited = 0; waited < PATIENCE_S; waited += 1e-3) {
		int ended = 0;
		for (int i = 0; i < count; i++)
			ended += trial_turn(&t[i]);
		if (ended == count)
			return;
		usleep(1000);
	}
	for (int i = 0; i < count; i++)
		if (!trial_turn(&t[i]))
			fail_msg("%s: %s hangs", phase_names[t[i].phase],
				 client_ended(&t[i]) ? "the server" : "the client");
}

/* Alone, and with more and more time. */
static bool try_again(const struct trial *t)
{
	struct trial again;
	double slowness = 1;
	for (int try = 1; try < TRIES; try++) {
		slowness *= 2;
		trial_prepare(&again, 0, t->fault, t->phase, t->comes_back, slowness);
		trial_begin(&again);
		await_trials(&again, 1);
		if (trial_end(&again))
			return true;
	}
	return false;
}

/* All phases at once. */
static void run_phases_as(enum fault fault, bool comes_back)
{
	struct trial t[PHASES];
	bool ended[PHASES];
	for (int phase = 0; phase < PHASES; phase++)
		trial_prepare(&t[phase], phase, fault, (enum phase)phase, comes_back, 1);
	for (int phase = 0; phase < PHASES; phase++)
		trial_begin(&t[phase]);
	await_trials(t, PHASES);
	for (int phase = 0; phase < PHASES; phase++)
		ended[phase] = trial_end(&t[phase]);
	for (int phase = 0; phase < PHASES; phase++)
		if (!ended[phase] && !try_again(&t[phase]))
			fail_msg("%s: over too early, %d times", phase_names[phase], TRIES);
}

static void run_phases(enum fault fault)
{
	run_phases_as(fault, false);
}

static void a_stalled_link_is_noticed_by_the_deadline(void **state)
{
	(void)state;
	run_phases(STALL);
}

static void a_half_open_link_is_noticed_by_the_deadline(void **state)
{
	(void)state;
	run_phases(HALF);
}

static void a_reset_is_noticed_before_any_deadline(void **state)
{
	(void)state;
	run_phases(RESET);
}

static void an_orderly_end_in_the_middle_is_noticed_before_any_deadline(void **state)
{
	(void)state;
	run_phases(FIN);
}

static void a_stopped_server_is_noticed_and_goes_on_without_the_client(void **state)
{
	(void)state;
	run_phases(STOP_SERVER);
}

static void a_stopped_client_is_noticed_and_told_when_it_goes_on(void **state)
{
	(void)state;
	run_phases(STOP_CLIENT);
}

static void ends_that_come_back_do_the_steps_of_an_undisturbed_run(void **state)
{
	(void)state;
	for (int fault = STALL; fault <= STOP_CLIENT; fault++)
		run_phases_as((enum fault)fault, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stalled_link_is_noticed_by_the_deadline),
		cmocka_unit_test(a_half_open_link_is_noticed_by_the_deadline),
		cmocka_unit_test(a_reset_is_noticed_before_any_deadline),
		cmocka_unit_test(an_orderly_end_in_the_middle_is_noticed_before_any_deadline),
		cmocka_unit_test(a_stopped_server_is_noticed_and_goes_on_without_the_client),
		cmocka_unit_test(a_stopped_client_is_noticed_and_told_when_it_goes_on),
		cmocka_unit_test(ends_that_come_back_do_the_steps_of_an_undisturbed_run),
	};
	start_helper();
	return cmocka_run_group_tests(tests, find_places, NULL);
}

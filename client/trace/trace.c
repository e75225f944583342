/* SPDX-License-Identifier: Apache-2.0
 *
 * See trace.h. Test: tests/unit/test_trace.c, tests/e2e/trace.sh
 */
#include "client/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/direction.h"

#define QUEUE_EVENTS 16384 /* some steps of a hundred chunks */
#define FLUSH_BYTES  (64u << 10)
#define EVENT_BYTES  1024 /* most of one event with its arrows */
#define WAIT_MS      100
#define FILES_MOST   10000
#define END_BYTES    8

/* Rows of the picture: the end, and what it is that does one thing at a time. */
enum process { CLIENT = 1, SERVER = 2 };
enum row { STEPS = 1, COMPUTE, CODEC, WIRE, COMMITS, QUEUES, ROWS };
#define ROWS_MOST                    2000
#define WIRE_ROW(direction, tensor)  (100 + (direction)*GP_GRAPH_MAX_PORTS + (tensor))
#define CODEC_ROW(direction, tensor) (500 + (direction)*GP_GRAPH_MAX_PORTS + (tensor))

enum kind { INTERVAL, CLOCK };

struct event {
	enum kind kind;
	uint32_t chunks;
	struct gp_interval i;
	struct gp_clock_estimate clock;
};

struct gp_trace {
	struct gp_trace_spec spec;
	char path[GP_TRACE_PATH];
	int fd;
	uint64_t begin_ns;
	pthread_t thread;
	pthread_mutex_t lock; /* of the queue, and of what the thread leaves behind */
	pthread_cond_t work;
	struct event *queue; /* a ring */
	unsigned head, count;
	bool ending;
	uint64_t dropped; /* events that found the queue full */
	bool others;      /* there were events of steps that are not wanted; of the thread that calls gp_trace_put */
	/* the thread's */
	char *text;
	size_t length;
	uint64_t written;
	int failed;                  /* errno of the first write that failed; 0: none has */
	bool full, begun, any;       /* any: not only names of rows */
	bool named[2][ROWS_MOST];    /* rows */
	uint64_t ends_ns[ROWS_MOST]; /* of the server's newest event of each */
};

/* --- which stage is drawn where --------------------------------------------------------------------------------------- */

struct look {
	enum process process;
	enum row row;
	enum gp_direction direction; /* of WIRE and CODEC */
};

static const struct look looks[GP_AT_STAGES] = {
	[GP_AT_HEAD_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_ACT_UP_ENCODE] = {CLIENT, CODEC, GP_ACT_UP},
	[GP_AT_ACT_UP_SENT] = {CLIENT, WIRE, GP_ACT_UP},
	[GP_AT_ACT_UP_RECEIVED] = {SERVER, WIRE, GP_ACT_UP},
	[GP_AT_ACT_UP_DECODE] = {SERVER, CODEC, GP_ACT_UP},
	[GP_AT_BODY_FORWARD] = {SERVER, COMPUTE, 0},
	[GP_AT_ACT_DOWN_ENCODE] = {SERVER, CODEC, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_SENT] = {SERVER, WIRE, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_RECEIVED] = {CLIENT, WIRE, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_DECODE] = {CLIENT, CODEC, GP_ACT_DOWN},
	[GP_AT_TAIL] = {CLIENT, COMPUTE, 0},
	[GP_AT_GRAD_UP_ENCODE] = {CLIENT, CODEC, GP_GRAD_UP},
	[GP_AT_GRAD_UP_SENT] = {CLIENT, WIRE, GP_GRAD_UP},
	[GP_AT_GRAD_UP_RECEIVED] = {SERVER, WIRE, GP_GRAD_UP},
	[GP_AT_GRAD_UP_DECODE] = {SERVER, CODEC, GP_GRAD_UP},
	[GP_AT_BODY_BACKWARD] = {SERVER, COMPUTE, 0},
	[GP_AT_GRAD_DOWN_ENCODE] = {SERVER, CODEC, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_SENT] = {SERVER, WIRE, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_RECEIVED] = {CLIENT, WIRE, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_DECODE] = {CLIENT, CODEC, GP_GRAD_DOWN},
	[GP_AT_HEAD_BACKWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_BODY_UPDATE] = {SERVER, COMPUTE, 0},
	[GP_AT_BODY_CHECKPOINT] = {SERVER, STEPS, 0},
	[GP_AT_TAIL_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_LOSS] = {CLIENT, COMPUTE, 0},
	[GP_AT_TAIL_BACKWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_UPDATE] = {CLIENT, COMPUTE, 0},
	[GP_AT_COMMIT] = {CLIENT, COMMITS, 0},
	[GP_AT_SQUARES] = {CLIENT, COMMITS, 0},
	[GP_AT_STEP] = {CLIENT, STEPS, 0},
	[GP_AT_BATCH] = {CLIENT, STEPS, 0},
	[GP_AT_CHECKPOINT] = {CLIENT, STEPS, 0},
	[GP_AT_VALIDATION] = {CLIENT, STEPS, 0},
	[GP_AT_STATISTICS] = {CLIENT, STEPS, 0},
	[GP_AT_MODEL_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_MODEL_LOSS] = {CLIENT, COMPUTE, 0},
	[GP_AT_MODEL_BACKWARD] = {CLIENT, COMPUTE, 0},
};

static bool of_chunk(enum gp_interval_stage stage)
{
	return stage < GP_AT_CHUNK_STAGES || (stage >= GP_AT_TAIL_FORWARD && stage <= GP_AT_TAIL_BACKWARD) ||
	       stage >= GP_AT_MODEL_FORWARD;
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		if (gp_fault_hit(GP_FAULT_WRITE))
			return ENOSPC;
		const ssize_t n = write(fd, text, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		text += n;
		length -= (size_t)n;
	}
	return 0;
}

static void flush(struct gp_trace *t)
{
	if (t->failed == 0 && t->length > 0) {
		t->failed = write_all(t->fd, t->text, t->length);
		if (t->failed)
			gp_log(main, GP_LOG_WARN, "cannot write trace %s: %s; no more of it follows", t->path,
			       strerror(t->failed));
	}
	t->written += t->length;
	t->length = 0;
}

static void stop_at_limit(struct gp_trace *t)
{
	t->full = true;
	gp_log(main, GP_LOG_WARN,
	       "trace %s ends here, at its limit of %llu bytes (--trace-limit); the training goes on", t->path,
	       (unsigned long long)t->spec.limit_bytes);
}

/* One event, without what separates it from the next one. */
struct line {
	char text[EVENT_BYTES];
	size_t length;
};

static void add_line(struct gp_trace *t, const struct line *l)
{
	if (t->full || l->length == EVENT_BYTES)
		return;
	if (t->written + t->length + l->length + END_BYTES > t->spec.limit_bytes) {
		stop_at_limit(t);
		return;
	}
	memcpy(t->text + t->length, t->begun ? ",\n" : "[\n", 2);
	memcpy(t->text + t->length + 2, l->text, l->length);
	t->length += l->length + 2;
	t->begun = true;
	if (t->length >= FLUSH_BYTES)
		flush(t);
}

__attribute__((format(printf, 2, 3))) static void add(struct gp_trace *t, const char *format, ...)
{
	struct line l;
	va_list args;
	va_start(args, format);
	const int n = vsnprintf(l.text, sizeof l.text, format, args);
	va_end(args);
	l.length = n >= 0 && n < EVENT_BYTES ? (size_t)n : EVENT_BYTES;
	add_line(t, &l);
}

/* There are thousands of events in a second: they are written without printf, which is slower. */

static void put_text(struct line *l, const char *text)
{
	const size_t n = strlen(text), room = EVENT_BYTES - l->length;
	memcpy(l->text + l->length, text, n < room ? n : room);
	l->length += n < room ? n : room;
}

static void begin_line(struct line *l, const char *text)
{
	l->length = 0;
	put_text(l, text);
}

/* At least `least` digits. */
static void put_digits(struct line *l, uint64_t v, unsigned base, int least)
{
	char digits[24];
	int at = sizeof digits - 1;
	digits[at] = '\0';
	for (; v > 0 || least > 0; v /= base, least--)
		digits[--at] = "0123456789abcdef"[v % base];
	put_text(l, digits + at);
}

static void put_number(struct line *l, const char *before, uint64_t v)
{
	put_text(l, before);
	put_digits(l, v, 10, 1);
}

/* Microseconds with three digits behind the point. */
static void put_us(struct line *l, const char *before, uint64_t ns)
{
	put_number(l, before, ns / 1000);
	put_text(l, ".");
	put_digits(l, ns % 1000, 10, 3);
}

/* Nanoseconds since the trace began; what came before that is not drawn. */
static uint64_t since(const struct gp_trace *t, uint64_t ns)
{
	return ns > t->begin_ns ? ns - t->begin_ns : 0;
}

static bool is_here(const struct look *l)
{
	return gp_direction_info[l->direction].up == (l->process == CLIENT);
}

static void row_name(const struct look *l, unsigned tensor, bool second, char text[64])
{
	static const char *const names[ROWS] = {
		[STEPS] = "steps", [COMPUTE] = "compute", [COMMITS] = "commits", [QUEUES] = "queues"};
	const bool here = is_here(l);
	const char *what = l->row == WIRE ? here ? "sent" : "received" : here ? "encode" : "decode";
	if (l->row == WIRE || l->row == CODEC)
		snprintf(text, 64, "%s %u %s%s", gp_direction_info[l->direction].name, tensor, what,
			 second ? ", odd chunks" : "");
	else
		snprintf(text, 64, "%s", l->process == SERVER && l->row == STEPS ? "checkpoints" : names[l->row]);
}

/*
 * Gives the number of a row, and names it before its first event. Events of a row must not overlap unless one is within
 * another. The first byte of a tensor is handed to the kernel while the last ones of the tensor before it are on their way: what
 * is sent has a row for chunks of even numbers and one for the others.
 */
static unsigned row_of(struct gp_trace *t, const struct look *l, unsigned tensor, uint64_t number)
{
	const bool second = l->row == WIRE && is_here(l) && number % 2 == 1;
	const unsigned base = l->row == WIRE    ? WIRE_ROW(l->direction, tensor)
			      : l->row == CODEC ? CODEC_ROW(l->direction, tensor)
						: (unsigned)l->row;
	const unsigned row = 2 * base + second;
	char name[64];
	if (t->named[l->process - 1][row])
		return row;
	t->named[l->process - 1][row] = true;
	row_name(l, tensor, second, name);
	add(t, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":\"%s\"}}", l->process,
	    row, name);
	add(t, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%u,\"args\":{\"sort_index\":%u}}",
	    l->process, row, row);
	return row;
}

/* Where and when, of an event that is not of a whole interval. */
static void put_place(struct line *l, uint64_t id, enum process process, unsigned row, uint64_t ns)
{
	put_text(l, "\",\"id\":\"");
	put_digits(l, id, 16, 1);
	put_number(l, "\",\"pid\":", process);
	put_number(l, ",\"tid\":", row);
	put_us(l, ",\"ts\":", ns);
}

/* What it waited before it began, as a pair of events that others may overlap. */
static void add_queued(struct gp_trace *t, const struct look *look, const struct gp_interval *i)
{
	if (i->begin_ns <= i->queued_ns || !of_chunk(i->stage))
		return;
	const struct look queues = {look->process, QUEUES, 0};
	const unsigned row = row_of(t, &queues, 0, 0);
	const uint64_t id = (i->number * GP_AT_STAGES + i->stage) * GP_GRAPH_MAX_PORTS + i->tensor;
	for (int ends = 0; ends < 2; ends++) {
		struct line l;
		begin_line(&l, ends ? "{\"ph\":\"e\"" : "{\"ph\":\"b\"");
		put_text(&l, ",\"cat\":\"queued\",\"name\":\"");
		put_text(&l, gp_interval_stage_name(i->stage));
		put_text(&l, ": queued");
		put_place(&l, id, look->process, row, since(t, ends ? i->begin_ns : i->queued_ns));
		put_text(&l, "}");
		add_line(t, &l);
	}
}

/* An arrow from where a tensor was sent to where it was received; both ends lie within their intervals. */
static void add_arrow(struct gp_trace *t, const struct look *look, const struct gp_interval *i, unsigned row)
{
	const struct gp_direction_info *d = &gp_direction_info[look->direction];
	const bool begins = d->up == (look->process == CLIENT);
	const uint64_t id = (i->number * GP_DIRECTIONS + look->direction) * GP_GRAPH_MAX_PORTS + i->tensor;
	const uint64_t ns = begins || i->end_ns == i->begin_ns ? i->begin_ns : i->end_ns - 1;
	struct line l;
	begin_line(&l, begins ? "{\"ph\":\"s\"" : "{\"ph\":\"f\",\"bp\":\"e\"");
	put_text(&l, ",\"cat\":\"frame\",\"name\":\"");
	put_text(&l, d->name);
	put_place(&l, id, look->process, row, since(t, ns));
	put_text(&l, "}");
	add_line(t, &l);
}

static bool is_wanted(const struct gp_trace *t, uint64_t step)
{
	return step >= t->spec.first && (t->spec.last == 0 || step <= t->spec.last);
}

/* When a better guess of the server's clock moves its events to an earlier time, one could begin before the end of the one
 * before it in its row: then it is drawn from that end on. */
static struct gp_interval apart(struct gp_trace *t, const struct look *look, unsigned row, struct gp_interval i)
{
	uint64_t *end_ns = &t->ends_ns[row];
	if (look->process == CLIENT)
		return i;
	i.begin_ns = i.begin_ns > *end_ns ? i.begin_ns : *end_ns;
	i.end_ns = i.end_ns > i.begin_ns ? i.end_ns : i.begin_ns;
	*end_ns = i.end_ns;
	return i;
}

static void add_interval(struct gp_trace *t, const struct event *e)
{
	const struct gp_interval *i = &e->i;
	const struct look *look = &looks[i->stage];
	struct line l;
	if (i->stage == GP_AT_CHUNK_DONE)
		return;
	const unsigned row = row_of(t, look, i->tensor, i->number);
	add_queued(t, look, i);
	const struct gp_interval drawn = apart(t, look, row, *i);
	begin_line(&l, of_chunk(i->stage) ? "{\"ph\":\"X\",\"cat\":\"chunk\"" : "{\"ph\":\"X\",\"cat\":\"step\"");
	put_text(&l, ",\"name\":\"");
	put_text(&l, gp_interval_stage_name(i->stage));
	put_number(&l, "\",\"pid\":", look->process);
	put_number(&l, ",\"tid\":", row);
	put_us(&l, ",\"ts\":", since(t, drawn.begin_ns));
	put_us(&l, ",\"dur\":", since(t, drawn.end_ns) - since(t, drawn.begin_ns));
	put_number(&l, ",\"args\":{\"step\":", i->number / e->chunks + 1);
	if (of_chunk(i->stage)) {
		put_number(&l, ",\"chunk\":", i->number % e->chunks);
		put_number(&l, ",\"tensor\":", i->tensor);
	}
	if (i->bytes > 0)
		put_number(&l, ",\"bytes\":", i->bytes);
	put_text(&l, "}}");
	add_line(t, &l);
	if (look->row == WIRE)
		add_arrow(t, look, &drawn, row);
}

static void add_clock(struct gp_trace *t, const struct event *e)
{
	add(t,
	    "{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"clock\",\"name\":\"server_clock\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
	    "\"args\":{\"offset_us\":%.3f,\"uncertainty_us\":%.3f}}",
	    CLIENT, 2 * STEPS, (double)since(t, e->i.begin_ns) * 1e-3, (double)e->clock.offset_ns * 1e-3,
	    (double)e->clock.uncertainty_ns * 1e-3);
}

static void add_process(struct gp_trace *t, enum process p, const char *name)
{
	add(t, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}}", p, name);
	add(t, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}}", p,
	    p);
}

static void add_head(struct gp_trace *t)
{
	char text[64];
	struct tm tm;
	const time_t now = time(NULL);
	gmtime_r(&now, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
	add_process(t, CLIENT, "gpclient");
	if (t->spec.split)
		add_process(t, SERVER, "gpserverd");
	add(t,
	    "{\"ph\":\"M\",\"name\":\"gpsplit\",\"pid\":%d,\"tid\":0,\"args\":{\"version\":\"%s\",\"begun\":\"%s\"}}",
	    CLIENT, GP_VERSION, text);
}

/* --- the thread --------------------------------------------------------------------------------------------------------- */

enum taken { NOTHING, AN_EVENT, THE_END };

static struct timespec after_ms(long ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ms * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000L;
	t.tv_nsec %= 1000000000L;
	return t;
}

/* Looks for events now and then: whoever puts one wakes nobody. */
static enum taken take_event(struct gp_trace *t, struct event *out)
{
	enum taken taken = NOTHING;
	pthread_mutex_lock(&t->lock);
	if (t->count > 0) {
		*out = t->queue[t->head];
		t->head = (t->head + 1) % QUEUE_EVENTS;
		t->count--;
		taken = AN_EVENT;
	} else if (t->ending) {
		taken = THE_END;
	}
	pthread_mutex_unlock(&t->lock);
	return taken;
}

static void wait_for_events(struct gp_trace *t)
{
	const struct timespec until = after_ms(WAIT_MS);
	pthread_mutex_lock(&t->lock);
	if (t->count == 0 && !t->ending)
		pthread_cond_timedwait(&t->work, &t->lock, &until);
	pthread_mutex_unlock(&t->lock);
}

/* Whatever is queued is in the file before the thread waits for more: a killed process leaves whole events. */
static void *run(void *arg)
{
	struct gp_trace *t = arg;
	struct event e;
	enum taken taken;
	pthread_setname_np(pthread_self(), "gp-trace");
	add_head(t);
	while ((taken = take_event(t, &e)) != THE_END) {
		t->any |= taken == AN_EVENT;
		if (taken == NOTHING) {
			flush(t);
			wait_for_events(t);
		} else if (e.kind == INTERVAL) {
			add_interval(t, &e);
		} else {
			add_clock(t, &e);
		}
	}
	return NULL;
}

static void put(struct gp_trace *t, const struct event *e)
{
	pthread_mutex_lock(&t->lock);
	if (t->count < QUEUE_EVENTS)
		t->queue[(t->head + t->count++) % QUEUE_EVENTS] = *e;
	else
		t->dropped++;
	const bool much = t->count == QUEUE_EVENTS / 2;
	pthread_mutex_unlock(&t->lock);
	if (much)
		pthread_cond_signal(&t->work);
}

void gp_trace_put(struct gp_trace *t, const struct gp_interval *i, uint32_t chunks)
{
	const struct event e = {.kind = INTERVAL, .chunks = chunks, .i = *i};
	if (i->stage >= GP_AT_STAGES || chunks == 0)
		return;
	if (is_wanted(t, i->number / chunks + 1))
		put(t, &e);
	else
		t->others = true;
}

void gp_trace_put_clock(struct gp_trace *t, const struct gp_clock_estimate *clock, uint64_t now_ns, uint64_t step)
{
	const struct event e = {.kind = CLOCK, .i = {.begin_ns = now_ns}, .clock = *clock};
	(void)step; /* of any: it holds for what follows */
	put(t, &e);
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static bool holds_something(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* The name that the file gets. */
static enum gp_status choose_path(struct gp_trace *t, struct gp_err *err)
{
	int n = snprintf(t->path, sizeof t->path, "%s", t->spec.path);
	for (int k = 2; t->spec.resumed && k < FILES_MOST && n < (int)sizeof t->path && holds_something(t->path); k++)
		n = snprintf(t->path, sizeof t->path, "%s.%d", t->spec.path, k);
	if (n >= (int)sizeof t->path)
		GP_FAIL(err, GP_INVALID, "--trace: a name of %d bytes is too long", n);
	if (holds_something(t->path))
		GP_FAIL(err, GP_INVALID,
			"--trace: %s holds something already, which is not written over: give another name, or remove "
			"it",
			t->path);
	return GP_OK;
}

static enum gp_status open_file(struct gp_trace *t, struct gp_err *err)
{
	GP_TRY(choose_path(t, err));
	t->fd = open(t->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (t->fd < 0)
		GP_FAIL(err, GP_INVALID, "--trace: cannot create %s: %s", t->path, strerror(errno));
	return GP_OK;
}

static void free_trace(struct gp_trace *t)
{
	if (t->fd >= 0)
		close(t->fd);
	gp_free(t->queue);
	gp_free(t->text);
	gp_free(t);
}

static enum gp_status begin(struct gp_trace *t, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&t->queue, QUEUE_EVENTS, sizeof *t->queue, err));
	GP_TRY(gp_alloc_array((void **)&t->text, FLUSH_BYTES + 2 * EVENT_BYTES, 1, err));
	GP_TRY(open_file(t, err));
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	t->begin_ns = gp_now_ns();
	const int code = pthread_create(&t->thread, NULL, run, t);
	if (code != 0)
		GP_FAIL(err, GP_NOMEM, "cannot begin a thread for --trace: %s", strerror(code));
	return GP_OK;
}

enum gp_status gp_trace_open(const struct gp_trace_spec *spec, struct gp_trace **out, struct gp_err *err)
{
	struct gp_trace *t;
	GP_TRY(gp_alloc_array((void **)&t, 1, sizeof *t, err));
	t->spec = *spec;
	t->fd = -1;
	const enum gp_status status = begin(t, err);
	if (status != GP_OK) {
		free_trace(t);
		return status;
	}
	*out = t;
	return GP_OK;
}

const char *gp_trace_path(const struct gp_trace *t)
{
	return t->path;
}

static void end_array(struct gp_trace *t)
{
	if (t->dropped > 0)
		add(t, "{\"ph\":\"M\",\"name\":\"gpsplit_dropped\",\"pid\":%d,\"tid\":0,\"args\":{\"events\":%llu}}",
		    CLIENT, (unsigned long long)t->dropped);
	memcpy(t->text + t->length, t->begun ? "\n]\n" : "[]\n", 3);
	t->length += 3;
	flush(t);
}

/* A run that ends before its first step, as one that finds no server, can be tried again with the same command. */
static void remove_file(const struct gp_trace *t)
{
	struct stat st;
	if (stat(t->path, &st) == 0 && S_ISREG(st.st_mode) && unlink(t->path) != 0)
		gp_log(main, GP_LOG_DEBUG, "%s stays: %s", t->path, strerror(errno));
}

enum gp_status gp_trace_close(struct gp_trace *t, struct gp_err *err)
{
	if (!t)
		return GP_OK;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	pthread_mutex_unlock(&t->lock);
	pthread_cond_signal(&t->work);
	pthread_join(t->thread, NULL);
	end_array(t);
	if (t->dropped > 0)
		gp_log(main, GP_LOG_WARN,
		       "trace %s: %llu events came faster than they could be written, and are missing", t->path,
		       (unsigned long long)t->dropped);
	enum gp_status status = GP_OK;
	if (close(t->fd) != 0 && !t->failed)
		t->failed = errno;
	t->fd = -1;
	if (t->failed)
		status = gp_err_set(err, GP_IO, t->failed, __FILE__, __LINE__, "cannot write trace %s: %s", t->path,
				    strerror(t->failed));
	if (!t->any)
		remove_file(t);
	if (!t->any && t->others)
		gp_log(main, GP_LOG_WARN, "no trace is left: the run had none of the steps that --trace-steps names");
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->work);
	free_trace(t);
	return status;
}

/* --- --trace-steps ------------------------------------------------------------------------------------------------------- */

static bool read_number(const char **text, uint64_t *out)
{
	uint64_t n = 0;
	const char *at = *text;
	for (; *at >= '0' && *at <= '9' && n < UINT64_MAX / 20; at++)
		n = n * 10 + (uint64_t)(*at - '0');
	const bool any = at > *text;
	if (any)
		*out = n;
	*text = at;
	return any;
}

enum gp_status gp_trace_steps_read(const char *text, uint64_t *first, uint64_t *last, struct gp_err *err)
{
	const char *at = text;
	uint64_t from = 1, to = 0;
	const bool begins = read_number(&at, &from);
	const bool range = *at == ':';
	at += range;
	const bool ends = range && read_number(&at, &to);
	if (!range)
		to = from;
	if (*at || (!begins && !ends) || from < 1 || (ends && to < from) || (!range && to < 1))
		GP_FAIL(err, GP_USAGE,
			"--trace-steps: '%.40s' is no range of steps: write A:B from the first to the last one, "
			"counted from 1, "
			"or A:, :B or A",
			text);
	*first = from;
	*last = to;
	return GP_OK;
}

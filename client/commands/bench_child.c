/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_child.h. Test: tests/e2e/bench.sh
 */
#include "client/commands/bench_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "client/link/link_relay.h"
#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/net/conn.h"

#define SELF      "/proc/self/exe"
#define STOP_MS   200 /* how often a signal is looked for */
#define KILL_S    20  /* a row that was asked to end and does not */
#define SAID_MOST (1 << 16)

struct running {
	const struct gp_bench_child *spec;
	uv_loop_t loop;
	uv_signal_t ended;
	uv_timer_t look;
	struct gp_link_relay relay;
	bool relays;
	pid_t pid;
	int status; /* of waitpid */
	int looked; /* times since the row was asked to end */
	uint64_t begin_ns;
	bool over;
};

/* --- the process -------------------------------------------------------------------------------------------------- */

/* In the new process: only what a program with threads may do between fork and exec. */
static void become(const struct gp_bench_child *c, const char **argv, pid_t parent)
{
	static const char failed[] = "gpclient cannot start itself again by " SELF;
	const int in = open("/dev/null", O_RDONLY);
	const int out = open(c->said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not go on alone */
	if (in < 0 || out < 0 || getppid() != parent || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(out, STDERR_FILENO) < 0)
		_exit(1);
	setpgid(0, 0); /* Ctrl-C is for this side, which passes it on */
	execv(SELF, (char *const *)argv);
	const bool told = write(STDERR_FILENO, failed, sizeof failed - 1) == sizeof failed - 1;
	_exit(told ? 127 : 1);
}

static enum gp_status start(struct running *r, const char *server, struct gp_err *err)
{
	const struct gp_bench_child *c = r->spec;
	const char *argv[GP_BENCH_ARGS + 4] = {"gpclient"};
	const pid_t parent = getpid();
	int n = 1;
	for (; c->argv[n - 1] && n <= GP_BENCH_ARGS; n++)
		argv[n] = c->argv[n - 1];
	argv[n++] = "--server";
	argv[n] = server;
	r->pid = fork();
	if (r->pid < 0)
		GP_FAIL(err, GP_IO, "cannot start a process for a row: %s", strerror(errno));
	if (r->pid == 0)
		become(c, argv, parent);
	return GP_OK;
}

/* --- what it says --------------------------------------------------------------------------------------------------- */

/* The last line of a file, without control characters; "" where there is none. */
static void last_line(const char *path, char *text, size_t size)
{
	static char said[SAID_MOST + 1];
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	const off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
	ssize_t n = fd >= 0 ? pread(fd, said, SAID_MOST, end > SAID_MOST ? end - SAID_MOST : 0) : 0;
	if (fd >= 0)
		close(fd);
	while (n > 0 && (said[n - 1] == '\n' || said[n - 1] == '\r'))
		n--;
	said[n > 0 ? n : 0] = '\0';
	const char *line = strrchr(said, '\n');
	line = line ? line + 1 : said;
	if (strncmp(line, "gpclient train: ", 16) == 0)
		line += 16;
	snprintf(text, size, "%.*s", (int)size - 1, line);
	gp_hide_control_characters(text);
}

/* Its newest line, if that is a warning: "2026-11-28T07:00:00.000Z warn session: ..." without the time. */
static const char *warning_in(const char *line)
{
	const char *level = strstr(line, " warn ");
	return level ? level + 6 : "";
}

static void tell_that_it_runs(const struct running *r)
{
	char line[GP_ERR_TEXT];
	if (!r->spec->wait)
		return;
	last_line(r->spec->said, line, sizeof line);
	r->spec->wait(r->spec->arg, (double)(gp_now_ns() - r->begin_ns) * 1e-9, warning_in(line));
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void finish(struct running *r)
{
	if (r->over)
		return;
	r->over = true;
	if (r->relays)
		gp_link_relay_stop(&r->relay);
	uv_close((uv_handle_t *)&r->ended, NULL);
	uv_close((uv_handle_t *)&r->look, NULL);
}

static void look_for_end(struct running *r)
{
	if (!r->over && waitpid(r->pid, &r->status, WNOHANG) == r->pid) {
		r->pid = 0;
		finish(r);
	}
}

static void on_child(uv_signal_t *handle, int number)
{
	(void)number;
	look_for_end(handle->data);
}

static void on_look(uv_timer_t *timer)
{
	struct running *r = timer->data;
	look_for_end(r);
	if (!r->over)
		tell_that_it_runs(r);
	if (r->over || !*r->spec->stop)
		return;
	if (r->looked == 0)
		kill(r->pid, SIGTERM);
	else if (r->looked * STOP_MS == KILL_S * 1000)
		kill(r->pid, SIGKILL);
	r->looked++;
}

static enum gp_status start_relay(struct running *r, char server[320], struct gp_err *err)
{
	const struct gp_plan_link *shape = &r->spec->link->shape;
	const struct gp_link_spec spec = {
		.listen = "127.0.0.1:0",
		.to = r->spec->server,
		.shape = {{.rate_bps = shape->up.bytes_per_s * 8, .delay_s = shape->up.delay_s},
			  {.rate_bps = shape->down.bytes_per_s * 8, .delay_s = shape->down.delay_s}},
		.faults = {.stall_after = GP_LINK_NEVER, .drop_after = GP_LINK_NEVER, .corrupt_byte = GP_LINK_NEVER},
		.connect_timeout_s = r->spec->connect_timeout_s};
	GP_TRY(gp_link_relay_start(&r->relay, &r->loop, &spec, err));
	r->relays = true;
	gp_addr_format("127.0.0.1", gp_link_relay_port(&r->relay), server, 320);
	return GP_OK;
}

static enum gp_status begin(struct running *r, struct gp_err *err)
{
	char server[320];
	snprintf(server, sizeof server, "%s", r->spec->server);
	uv_signal_init(&r->loop, &r->ended);
	uv_timer_init(&r->loop, &r->look);
	r->ended.data = r->look.data = r;
	enum gp_status status = r->spec->link->as_is ? GP_OK : start_relay(r, server, err);
	if (status == GP_OK)
		status = start(r, server, err);
	if (status != GP_OK) {
		finish(r);
		return status;
	}
	uv_signal_start(&r->ended, on_child, SIGCHLD);
	uv_timer_start(&r->look, on_look, STOP_MS, STOP_MS);
	return GP_OK;
}

/* --- what it has come to ------------------------------------------------------------------------------------------ */

static enum gp_status class_of(int exit_status)
{
	static const enum gp_status classes[] = {[2] = GP_USAGE, [3] = GP_INVALID, [4] = GP_PEER, [5] = GP_DEVICE};
	return exit_status >= 2 && exit_status <= 5 ? classes[exit_status] : GP_INTERNAL;
}

static enum gp_status judge(const struct running *r, struct gp_err *err)
{
	char line[GP_ERR_TEXT - 64];
	if (r->pid == 0 && WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0)
		return GP_OK;
	if (*r->spec->stop)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal");
	last_line(r->spec->said, line, sizeof line);
	if (WIFSIGNALED(r->status))
		GP_FAIL(err, GP_INTERNAL, "the training was ended by signal %d (%s)%s%s", WTERMSIG(r->status),
			strsignal(WTERMSIG(r->status)), line[0] ? ": " : "", line);
	const int status = WEXITSTATUS(r->status);
	return gp_err_set(err, class_of(status), 0, __FILE__, __LINE__, "%s",
			  line[0] ? line : "the training failed without a word");
}

enum gp_status gp_bench_child_run(const struct gp_bench_child *c, struct gp_err *err)
{
	struct running r = {.spec = c, .begin_ns = gp_now_ns()};
	GP_TRY(gp_loop_init(&r.loop, err));
	const enum gp_status status = begin(&r, err);
	uv_run(&r.loop, UV_RUN_DEFAULT);
	uv_loop_close(&r.loop);
	return status == GP_OK ? judge(&r, err) : status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program tells its service manager, as that one gets it; and what it makes of the environment's variables, which
 * anybody may have set to anything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/notify.h"

static const char *const variables[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS"};

static int clear(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
		unsetenv(variables[i]);
	return 0;
}

/* A service manager's socket under a name of this process; NOTIFY_SOCKET names it. */
static int manager_listens(bool abstract, char path[108])
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(path, 108, "%sgp_notify_%ld", abstract ? "@" : "/tmp/", (long)getpid());
	strcpy(at.sun_path, path);
	if (abstract)
		at.sun_path[0] = '\0';
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, len), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	return fd;
}

static void expect(int fd, const char *wanted)
{
	char got[1024] = "";
	const ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
	assert_true(n >= 0);
	assert_string_equal(got, wanted);
}

static void without_a_service_manager_nothing_is_told(void **state)
{
	(void)state;
	struct gp_notify n;
	struct gp_err err;
	setenv("WATCHDOG_USEC", "1000000", 1); /* nobody would hear */
	assert_int_equal(gp_notify_open(&n, &err), GP_OK);
	assert_int_equal(n.watchdog_us, 0);
	assert_false(gp_notify_send(&n, "READY=1"));
	assert_int_equal(gp_notify_sockets(), 0);
	gp_notify_close(&n);
}

static void each_message_is_one_datagram(void **state)
{
	(void)state;
	for (int abstract = 0; abstract < 2; abstract++) {
		char path[108], longer[GP_NOTIFY_TEXT * 2], cut[GP_NOTIFY_TEXT];
		struct gp_notify n;
		struct gp_err err;
		const int fd = manager_listens(abstract, path);
		assert_int_equal(gp_notify_open(&n, &err), GP_OK);
		assert_true(gp_notify_send(&n, "READY=1\nSTATUS=%d sessions", 3));
		assert_true(gp_notify_send(&n, "WATCHDOG=1"));
		expect(fd, "READY=1\nSTATUS=3 sessions");
		expect(fd, "WATCHDOG=1");
		memset(longer, 'x', sizeof longer - 1);
		longer[sizeof longer - 1] = '\0';
		memcpy(cut, longer, sizeof cut - 1);
		cut[sizeof cut - 1] = '\0';
		assert_true(gp_notify_send(&n, "%s", longer));
		expect(fd, cut);
		gp_notify_close(&n);
		assert_false(gp_notify_send(&n, "READY=1"));
		close(fd);
		unlink(path);
	}
}

static void a_service_manager_that_reads_nothing_holds_up_nobody(void **state)
{
	(void)state;
	char path[108];
	struct gp_notify n;
	struct gp_err err;
	const int fd = manager_listens(true, path);
	int sent = 0;
	assert_int_equal(gp_notify_open(&n, &err), GP_OK);
	while (gp_notify_send(&n, "WATCHDOG=1"))
		sent++;
	assert_true(sent > 0);
	close(fd);
	assert_false(gp_notify_send(&n, "WATCHDOG=1")); /* nor does one that has gone end this process */
	gp_notify_close(&n);
}

static void a_broken_variable_is_an_error_with_its_name(void **state)
{
	(void)state;
	char endless[200];
	memset(endless, '/', sizeof endless - 1);
	endless[sizeof endless - 1] = '\0';
	const char *const broken[] = {"somewhere", "/", "@", "/nowhere/at/all", endless, "vsock:2:9"};
	for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
		struct gp_notify n;
		struct gp_err err = {0};
		setenv("NOTIFY_SOCKET", broken[i], 1);
		assert_int_equal(gp_notify_open(&n, &err), GP_INVALID);
		assert_non_null(strstr(err.text, "NOTIFY_SOCKET="));
		assert_int_equal(n.fd, -1);
		assert_false(gp_notify_send(&n, "READY=1"));
	}
}

static uint64_t watchdog(const char *usec, const char *pid)
{
	struct gp_notify n;
	struct gp_err err;
	setenv("WATCHDOG_USEC", usec, 1);
	unsetenv("WATCHDOG_PID");
	if (pid)
		setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(gp_notify_open(&n, &err), GP_OK);
	const uint64_t us = n.watchdog_us;
	gp_notify_close(&n);
	return us;
}

static void the_watchdog_is_that_of_this_process(void **state)
{
	(void)state;
	char path[108], us[24], parent[24];
	const int fd = manager_listens(true, path);
	snprintf(us, sizeof us, "%ld", (long)getpid());
	snprintf(parent, sizeof parent, "%ld", (long)getppid());
	assert_int_equal(watchdog("30000000", NULL), 30000000);
	assert_int_equal(watchdog("30000000", us), 30000000);
	assert_int_equal(watchdog("30000000", parent), 0);
	assert_int_equal(watchdog("30000000", ""), 0);
	assert_int_equal(watchdog("soon", us), 0);
	assert_int_equal(watchdog("-5", us), 0);
	assert_int_equal(watchdog("5s", us), 0);
	assert_int_equal(watchdog("99999999999999999999999", us), 0);
	close(fd);
}

static int sockets(const char *count, long pid)
{
	char text[24];
	snprintf(text, sizeof text, "%ld", pid);
	setenv("LISTEN_PID", text, 1);
	setenv("LISTEN_FDS", count, 1);
	return gp_notify_sockets();
}

static void sockets_are_those_of_this_process(void **state)
{
	(void)state;
	assert_int_equal(sockets("1", getpid()), 1);
	assert_int_equal(sockets("2", getpid()), 2);
	assert_int_equal(sockets("1", getppid()), 0);
	assert_int_equal(sockets("0", getpid()), 0);
	assert_int_equal(sockets("-1", getpid()), 0);
	assert_int_equal(sockets("1x", getpid()), 0);
	assert_int_equal(sockets("4294967297", getpid()), 0);
	unsetenv("LISTEN_PID");
	assert_int_equal(gp_notify_sockets(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_a_service_manager_nothing_is_told, clear),
		cmocka_unit_test_setup(each_message_is_one_datagram, clear),
		cmocka_unit_test_setup(a_service_manager_that_reads_nothing_holds_up_nobody, clear),
		cmocka_unit_test_setup(a_broken_variable_is_an_error_with_its_name, clear),
		cmocka_unit_test_setup(the_watchdog_is_that_of_this_process, clear),
		cmocka_unit_test_setup(sockets_are_those_of_this_process, clear),
	};
	return cmocka_run_group_tests(tests, clear, clear);
}

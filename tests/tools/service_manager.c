/* SPDX-License-Identifier: Apache-2.0
 *
 * service_manager [--sockets N | --udp] [--watchdog USEC] -- PROGRAM ARGUMENT...
 *
 * Runs a program as systemd does: with a socket for its messages, each of which is printed as one line (with " | " between
 * its own lines), and with N listening sockets of loopback (or one of UDP) from descriptor 3 on, whose first port is printed
 * as PORT=N before anything else. SIGTERM, SIGHUP and SIGINT are handed on. Ends with the program's exit status.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 3, MOST = 8, ASIDE = 32, READ_MS = 20 };

static volatile sig_atomic_t child;

static void hand_on(int number)
{
	if (child > 0)
		kill((pid_t)child, number);
}

/* Above the descriptors that the program gets them as. */
static int open_socket(int type)
{
	const struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const int low = socket(AF_INET, type, 0), fd = fcntl(low, F_DUPFD_CLOEXEC, ASIDE);
	close(low);
	if (bind(fd, (const struct sockaddr *)&at, sizeof at) || (type == SOCK_STREAM && listen(fd, 16)))
		exit(99);
	return fd;
}

static void print_port(int fd)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	if (getsockname(fd, (struct sockaddr *)&at, &len) == 0)
		printf("PORT=%u\n", ntohs(at.sin_port));
}

static int open_messages(char *path, size_t size)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_usec = READ_MS * 1000};
	snprintf(path, size, "@gp_service_manager_%ld", (long)getpid());
	strcpy(at.sun_path + 1, path + 1);
	const int low = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), fd = fcntl(low, F_DUPFD_CLOEXEC, ASIDE);
	close(low);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (bind(fd, (const struct sockaddr *)&at, (socklen_t)(sizeof at.sun_family + strlen(path))))
		exit(99);
	return fd;
}

/* In the child: what systemd puts into the environment. */
static void run(char **argv, const int *socket, int count, const char *path, const char *watchdog)
{
	char number[24];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < count; i++)
		dup2(socket[i], FIRST + i);
	snprintf(number, sizeof number, "%ld", (long)getpid());
	setenv("LISTEN_PID", number, 1);
	setenv("WATCHDOG_PID", number, 1);
	snprintf(number, sizeof number, "%d", count);
	setenv("LISTEN_FDS", number, 1);
	setenv("NOTIFY_SOCKET", path, 1);
	if (watchdog)
		setenv("WATCHDOG_USEC", watchdog, 1);
	execv(argv[0], argv);
	_exit(97);
}

static void print_messages(int fd)
{
	char text[1024];
	ssize_t n;
	while ((n = recv(fd, text, sizeof text - 1, 0)) >= 0) {
		text[n] = '\0';
		for (char *c = text; *c; c++)
			printf(*c == '\n' ? " | " : "%c", *c);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	int socket[MOST], count = 0, at = 1, status;
	char path[64];
	const char *watchdog = NULL;
	bool udp = false;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
		if (strcmp(argv[at], "--udp") == 0)
			udp = true;
		else if (strcmp(argv[at], "--sockets") == 0 && at + 1 < argc)
			count = atoi(argv[++at]);
		else if (strcmp(argv[at], "--watchdog") == 0 && at + 1 < argc)
			watchdog = argv[++at];
		else
			return 96;
	}
	if (at + 1 >= argc || count > MOST)
		return 96;
	count = udp ? 1 : count;
	for (int i = 0; i < count; i++)
		socket[i] = open_socket(udp ? SOCK_DGRAM : SOCK_STREAM);
	const int messages = open_messages(path, sizeof path);
	if (count > 0)
		print_port(socket[0]);
	signal(SIGTERM, hand_on);
	signal(SIGINT, hand_on);
	signal(SIGHUP, hand_on);
	child = fork();
	if (child == 0)
		run(argv + at + 1, socket, count, path, watchdog);
	while (waitpid((pid_t)child, &status, WNOHANG) == 0)
		print_messages(messages);
	print_messages(messages);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

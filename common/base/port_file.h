/* SPDX-License-Identifier: Apache-2.0
 *
 * --port-file: how a script learns the port of a program that listens on port
 * 0.
 *
 * Threads: any. Test: tests/e2e (every script reads one)
 */
#ifndef GP_PORT_FILE_H
#define GP_PORT_FILE_H

#include "common/base/status.h"

/* The number and a line feed, all at once: who sees the file can connect. */
enum gp_status gp_port_file_write(const char *path, uint16_t port, struct gp_err *err);

#endif

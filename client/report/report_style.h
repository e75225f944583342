/* SPDX-License-Identifier: Apache-2.0
 *
 * How a report looks, and what its script adds: the numbers below the pointer, or where the arrow keys have led.
 * Colours are those of Okabe and Ito, which colour-blind people tell apart; lines have dashes of their own, too.
 *
 * Threads: any; constants. Test: tests/unit/test_report.c, tests/e2e/report.sh
 */
#ifndef GP_REPORT_STYLE_H
#define GP_REPORT_STYLE_H

extern const char gp_report_style[];
/* What stands between <script> and </script>, byte for byte. */
extern const char gp_report_script[];

#endif

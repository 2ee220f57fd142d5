/* SPDX-License-Identifier: BSD-2-Clause */
/* A picture by gnuplot. */
#ifndef TOOLS_COMMON_PLOT_H
#define TOOLS_COMMON_PLOT_H


#define PLOT_WIDTH  900
#define PLOT_HEIGHT 540

/* Whether a picture can be drawn into @file, before what is in it is measured.
 * CMD_OK, or CMD_CANNOT with a message. */
int plot_check(const char *file);
/* Draw the table @data with gnuplot's commands @script into @file. The same. */
int plot_draw(const char *file, unsigned int width, unsigned int height,
	       const char *script, const char *data);

#endif /* TOOLS_COMMON_PLOT_H */

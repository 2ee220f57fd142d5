/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * /dev/ummunot, as the backend and the page swap open it. The module and the
 * device of the patch series differ in the magic of their requests.
 */
#ifndef NOTIFY_BACKEND_UMMUNOT_DEVICE_H
#define NOTIFY_BACKEND_UMMUNOT_DEVICE_H

#include "uapi/linux/ummunot.h"

#define UMMUNOT_NODE "/dev/ummunot"

/* A descriptor, close-on-exec, or a negative errno with a reason. */
int ummunot_device_open(int flags);
/* Returns as ioctl() does; @request is one of <linux/ummunot.h>. */
int ummunot_device_ioctl(int fd, unsigned long request, void *arg);
/* @rc with a reason: why the node can't be opened. */
int ummunot_device_missing(int rc);

#endif /* NOTIFY_BACKEND_UMMUNOT_DEVICE_H */

/* SPDX-License-Identifier: BSD-2-Clause */
/* The notifier of a process's caches that were given none. */
#ifndef NOTIFY_SHARED_H
#define NOTIFY_SHARED_H

#include <kedge/notifier.h>

#include "base/base.h"

/* As kedge_notifier_open(), with the defaults; to be put as often as it was got, in a
 * forked child as well. */
KEDGE_PRIVATE int kedge__notifier_get(struct kedge_notifier **nf);
KEDGE_PRIVATE void kedge__notifier_put(struct kedge_notifier *nf);

#endif /* NOTIFY_SHARED_H */

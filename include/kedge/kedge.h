/* SPDX-License-Identifier: BSD-2-Clause */
/* All of libkedge. Device libraries have their own: <kedge/uring.h>. */
#ifndef KEDGE_KEDGE_H
#define KEDGE_KEDGE_H

#include <kedge/base.h>
#include <kedge/cache.h>
#include <kedge/channel.h>
#include <kedge/channel_info.h>
#include <kedge/completion.h>
#include <kedge/connector.h>
#include <kedge/device.h>
#include <kedge/directory.h>
#include <kedge/notifier.h>
#include <kedge/pageswap.h>
#include <kedge/migrate.h>
#include <kedge/recommit.h>
#include <kedge/region.h>
#include <kedge/region_list.h>
#include <kedge/remote.h>
#include <kedge/segment.h>
#include <kedge/segment_list.h>
#include <kedge/tcp.h>

#endif /* KEDGE_KEDGE_H */

// SPDX-License-Identifier: BSD-2-Clause
// A user of the installed libraries, in C++17: io_uring's fixed buffers.
#include <kedge/hooks.h>
#include <kedge/kedge.h>
#include <kedge/uring.h>

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int skip = 77;

// Read the head of this program into buf through its registration.
int read_fixed(io_uring &ring, std::vector<char> &buf, const kedge_mr *mr)
{
	const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read_fixed(sqe, fd, buf.data(),
				 static_cast<unsigned>(buf.size()), 0,
				 static_cast<int>(mr->device_handle));
	io_uring_cqe *cqe = nullptr;
	int rc = io_uring_submit(&ring) == 1 ?
			 io_uring_wait_cqe(&ring, &cqe) : -1;
	if (!rc) {
		rc = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
	}
	close(fd);
	return rc;
}

int use(io_uring &ring, kedge_cache *cache)
{
	for (int i = 0; i < 8; i++) {
		// Large enough for malloc to map it, and to unmap it again.
		std::vector<char> buf(1 << 20);
		const kedge_mr *mr = nullptr;
		const int rc = kedge_cache_get(cache, buf.data(), buf.size(),
					       KEDGE_ACCESS_LOCAL_WRITE, &mr);
		if (rc) {
			std::fprintf(stderr, "get: %s\n", kedge_strerror(rc));
			return 1;
		}
		const int got = read_fixed(ring, buf, mr);
		kedge_cache_put(cache, mr);
		if (got < 4 || std::memcmp(buf.data(), "\177ELF", 4)) {
			std::fprintf(stderr, "round %d: %d bytes, not ours\n",
				     i, got);
			return 1;
		}
	}
	// "struct": the function of that name hides it in C++.
	struct kedge_cache_stats stats = {};
	stats.size = sizeof(stats);
	return kedge_cache_stats(cache, &stats) || stats.gets != 8 ||
	       stats.hits + stats.misses != 8;
}

} // namespace

int main()
{
	io_uring ring;
	int rc = io_uring_queue_init(8, &ring, 0);
	if (rc) {
		std::printf("skipped: io_uring: %s\n", std::strerror(-rc));
		return skip;
	}
	kedge_device *dev = nullptr;
	kedge_cache *cache = nullptr;
	int bad = 1;
	rc = kedge_device_open_uring(&ring, nullptr, &dev);
	if (!rc)
		rc = kedge_cache_open(dev, nullptr, nullptr, &cache);
	if (rc)
		std::fprintf(stderr, "open: %s\n", kedge_strerror(rc));
	else
		bad = use(ring, cache);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	io_uring_queue_exit(&ring);
	return bad;
}

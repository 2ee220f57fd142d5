/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of kedge that all others share: the export macro, versions, errors in words
 * and the log callback.
 */
#ifndef KEDGE_BASE_H
#define KEDGE_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KEDGE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/**
 * kedge_version() - the version of the library that is running
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: a static string such as "0.1.0".
 */
KEDGE_API const char *kedge_version(void);

/**
 * kedge_strerror() - an error in words, with what to do about it
 * @rc: what a kedge function returned; a positive number is read as its
 *      negative
 *
 * When the calling thread's last failed kedge call returned @rc, the text names
 * what went wrong there and the remedy ("RLIMIT_MEMLOCK is 8 MiB and 8 MiB of
 * it are used: raise it with ulimit -l or LimitMEMLOCK="). Otherwise it is the
 * general meaning of @rc.
 *
 * Threads: any; the text belongs to the calling thread.
 * Fork: works in the child.
 *
 * Return: a string, valid until this thread's next failed kedge call or its
 * next kedge_strerror(); never NULL.
 */
KEDGE_API const char *kedge_strerror(int rc);

/**
 * kedge_reason() - record why a call fails, for kedge_strerror()
 * @rc:  the negative errno that the call will return
 * @fmt: as printf's: what went wrong, then what to do about it
 *
 * For whoever writes a device's ops. The text belongs to the calling thread and
 * is cut at 255 bytes. Keeps errno; does not allocate.
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: @rc, so that a function can end with "return kedge_reason(...)".
 */
KEDGE_API int kedge_reason(int rc, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** enum kedge_log_severity - how bad a log message is */
enum kedge_log_severity {
	KEDGE_LOG_ERROR = 1,
	KEDGE_LOG_WARN = 2,
	KEDGE_LOG_INFO = 3,
	KEDGE_LOG_DEBUG = 4,
};

typedef void (*kedge_log_fn)(void *ctx, int severity, const char *text);

/**
 * kedge_log_set() - receive what the library has to say
 * @fn:       called with one line without a newline; NULL drops all messages.
 *            It must not call kedge and may run on any thread of the process
 * @ctx:      borrowed; handed to @fn
 * @severity: the least important enum kedge_log_severity that is handed over;
 *            0 means what KEDGE_LOG asks for
 *
 * Without this call messages go to standard error when the environment has
 * KEDGE_LOG set, errors also when it has KEDGE_VERIFY=1, and nowhere otherwise.
 *
 * Threads: any; another thread's message that is on its way may still reach
 * the function that was set before.
 * Fork: the child inherits the setting.
 */
KEDGE_API void kedge_log_set(kedge_log_fn fn, void *ctx, int severity);

/**
 * struct kedge_env - one environment variable that kedge knows
 * @name:    its name, "KEDGE_NOTIFIER"
 * @meaning: what it does, in a sentence
 * @syntax:  the values it takes
 * @dflt:    what holds when it is not set
 * @value:   the value in the environment now, or NULL
 */
struct kedge_env {
	const char *name;
	const char *meaning;
	const char *syntax;
	const char *dflt;
	const char *value;
};

/**
 * kedge_env_list() - the environment variables that kedge reads
 * @list: filled with at most @max entries; the strings are static or the
 *        environment's own
 * @max:  how many entries @list has room for
 *
 * Threads: any that does not run beside setenv(). Fork: works in the child.
 *
 * Return: how many there are, which may be more than @max.
 */
KEDGE_API size_t kedge_env_list(struct kedge_env *list, size_t max);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_BASE_H */

// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"kedge"
)

// Far beyond what anything here takes: a test that hangs ends by it, and says where.
const watchdog = 2 * time.Minute

func watchdogContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	t.Cleanup(cancel)
	return ctx
}

func openNotifier(t testing.TB) *kedge.Notifier {
	t.Helper()
	watching(t)
	n, err := kedge.OpenNotifier(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func generation(t testing.TB, n *kedge.Notifier) uint64 {
	t.Helper()
	for {
		events, err := n.Read()
		if err != nil {
			t.Fatal(err)
		}
		if len(events) > 0 && events[len(events)-1].Kind == kedge.EventLast {
			return events[len(events)-1].Generation
		}
	}
}

func TestADropIsSeenWhenTheCallReturns(t *testing.T) {
	n := openNotifier(t)
	b := buffer(t, 16*page).Bytes()
	b[0] = 1
	if provisional, err := n.Watch(b, 7); err != nil || provisional {
		t.Fatal(provisional, err)
	}
	g := generation(t, n)
	if same, err := n.Unchanged(g); err != nil || !same || n.Generation() != g {
		t.Error(same, err, n.Generation(), g)
	}
	drop(t, b[page:2*page])
	if n.Generation() == g {
		t.Error("the generation is the same")
	}
	events, err := n.Read()
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	e, start := events[0], uintptr(unsafe.Pointer(&b[0]))
	if e.Cookie != 7 || e.Kind != kedge.EventRemove || e.Start > start+page ||
		e.End < start+2*page {
		t.Errorf("%+v, %#x", e, start)
	}
	if err := n.Unwatch(7); err != nil {
		t.Error(err)
	}
	if err := n.Unwatch(7); !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
}

func TestEventsComeByAChannel(t *testing.T) {
	n := openNotifier(t)
	b := buffer(t, 16*page).Bytes()
	b[0] = 1
	if _, err := n.Watch(b, 3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(watchdogContext(t))
	defer cancel()
	events, failed := n.Events(ctx)
	for i := 0; i < 5; i++ {
		b[0] = 1
		drop(t, b)
		select {
		case e := <-events:
			if e.Cookie != 3 || e.Kind != kedge.EventRemove {
				t.Fatalf("%+v", e)
			}
		case <-ctx.Done():
			t.Fatal("no event has come")
		}
	}
	if err := n.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	cancel()
	for range events {
	}
	if err := failed(); err != nil {
		t.Error(err)
	}
}

func TestACacheKeepsItsNotifierOpen(t *testing.T) {
	n := openNotifier(t)
	c, err := kedge.OpenCache(kedge.Memory, &kedge.CacheOptions{Notifier: n})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Get(buffer(t, page).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := n.Info(); err != nil || info.Watches != 1 || info.Backend == "" {
		t.Errorf("%+v, %v", info, err)
	}
	r.Put()
	if err := n.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for _, call := range []func() error{
		n.Close,
		func() error { _, err := n.Watch(make([]byte, 1), 1); return err },
		func() error { return n.Unwatch(1) },
		func() error { _, err := n.Read(); return err },
		func() error { _, err := n.Fd(); return err },
		func() error { _, err := n.Info(); return err },
		func() error { _, err := n.Unchanged(0); return err },
		func() error {
			events, failed := n.Events(context.Background())
			<-events
			return failed()
		},
		func() error {
			_, err := kedge.OpenCache(kedge.Memory, &kedge.CacheOptions{Notifier: n})
			return err
		},
	} {
		if err := call(); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestNotifierOptions(t *testing.T) {
	if _, err := kedge.OpenNotifier(&kedge.NotifierOptions{Backend: "tape"}); !errors.Is(err,
		syscall.EINVAL) {
		t.Error(err)
	}
	n, err := kedge.OpenNotifier(&kedge.NotifierOptions{Backend: "none", Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if info, err := n.Info(); err != nil || info.Level != kedge.LevelNone {
		t.Errorf("%+v, %v", info, err)
	}
	_, err = kedge.OpenNotifier(&kedge.NotifierOptions{Backend: "none",
		MinLevel: kedge.LevelOrdered})
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Error(err)
	}
}

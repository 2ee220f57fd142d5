// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"kedge"
)

type ends struct{ a, b *kedge.Channel }

func listen(t testing.TB, network string, o *kedge.ChannelOptions) *kedge.Listener {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "shm" {
		address = fmt.Sprintf("@kedge-go-%d-%s", os.Getpid(), t.Name())
	}
	l, err := kedge.Listen(network, address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect makes a channel with both ends in this process.
func connect(t testing.TB, network string, o *kedge.ChannelOptions) ends {
	t.Helper()
	var e ends

	l := listen(t, network, o)
	ctx := watchdogContext(t)
	failed := make(chan error)
	go func() {
		var err error
		e.a, err = l.Accept(ctx)
		failed <- err
	}()
	b, err := kedge.Dial(ctx, network, l.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	e.b = b
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.a.Close()
		e.b.Close()
	})
	return e
}

func both(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range []string{"shm", "tcp"} {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

func TestMessagesOfAllSizes(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		e := connect(t, network, nil)
		ctx := watchdogContext(t)
		for i, n := range []int{0, 1, 100, 9000, 600 << 10, 5 << 20} {
			sent, got := make([]byte, n), make([]byte, n+1)
			for at := range sent {
				sent[at] = byte(at*7 + n)
			}
			failed := make(chan error)
			go func() { failed <- e.a.Send(ctx, sent, uint64(i)) }()
			m, err := e.b.Recv(ctx, got)
			if err != nil || m.Len != n || m.Tag != uint64(i) || m.Way == "" {
				t.Fatal(n, m, err)
			}
			if err := <-failed; err != nil {
				t.Fatal(n, err)
			}
			if !bytes.Equal(sent, got[:n]) {
				t.Errorf("%d bytes differ", n)
			}
		}
		info, err := e.a.Info()
		if err != nil || info.Transport != network || info.EagerMax == 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// Goroutines share a channel: each gets what has its tag.
func TestGoroutinesShareAChannel(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		var wg sync.WaitGroup

		e := connect(t, network, nil)
		ctx, cancel := context.WithCancel(watchdogContext(t))
		defer cancel()
		const each, rounds = 8, 50
		for g := uint64(1); g <= each; g++ {
			wg.Add(2)
			go func(g uint64) {
				defer wg.Done()
				b := []byte{byte(g), 0}
				for i := 0; i < rounds; i++ {
					b[0], b[1] = byte(g), byte(i)
					if err := e.a.Send(ctx, b, g); err != nil {
						t.Error(err)
						cancel() // and the others end
						return
					}
					m, err := e.a.RecvTag(ctx, b, g, ^uint64(0))
					if err != nil || m.Tag != g || b[0] != byte(g)^255 ||
						b[1] != byte(i) {
						t.Error(m, err, b)
						cancel()
						return
					}
				}
			}(g)
			go func(g uint64) {
				defer wg.Done()
				b := make([]byte, 2)
				for i := 0; i < rounds; i++ {
					_, err := e.b.RecvTag(ctx, b, g, ^uint64(0))
					if err == nil {
						b[0] ^= 255
						err = e.b.Send(ctx, b, g)
					}
					if err != nil {
						t.Error(err)
						cancel() // and the others end
						return
					}
				}
			}(g)
		}
		wg.Wait()
	})
}

func TestAReceiveIsCancelledByItsContext(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		e := connect(t, network, nil)
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := e.a.Recv(ctx, make([]byte, 8))
			failed <- err
		}()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The channel goes on, and what comes later is not lost.
		go func() { failed <- e.b.Send(watchdogContext(t), []byte("more"), 5) }()
		b := make([]byte, 8)
		if m, err := e.a.Recv(watchdogContext(t), b); err != nil || m.Len != 4 ||
			string(b[:4]) != "more" {
			t.Error(m, err)
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
	})
}

func TestAnOperationGoesOnAfterItsWait(t *testing.T) {
	e := connect(t, "shm", nil)
	b := make([]byte, 8)
	o, err := e.a.StartRecv(b, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := o.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := o.Result(); !errors.Is(err, syscall.EINPROGRESS) {
		t.Error(err)
	}
	if err := e.b.Send(watchdogContext(t), []byte("late"), 1); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		if err := e.a.Poll(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-o.Done():
			done = true
		default:
		}
	}
	if m, err := o.Result(); err != nil || m.Len != 4 || string(b[:4]) != "late" {
		t.Error(m, err)
	}
	if err := o.Cancel(); err != nil {
		t.Error(err)
	}
}

func TestOperationsEndWithTheirChannel(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		e := connect(t, network, nil)
		o, err := e.a.StartRecv(make([]byte, 8), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := o.Wait(watchdogContext(t))
			failed <- err
		}()
		if err := e.a.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, syscall.ECANCELED) {
			t.Error(err)
		}
		_, err = e.b.Recv(watchdogContext(t), make([]byte, 8))
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		for _, call := range []func() error{
			e.a.Close,
			e.a.Poll,
			func() error { _, err := e.a.StartSend(nil, 0); return err },
			func() error { _, err := e.a.Info(); return err },
			func() error { _, _, err := e.a.Probe(0, 0); return err },
			func() error { _, err := e.a.Alloc(1); return err },
		} {
			if err := call(); !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

func TestAMessageThatIsTooLong(t *testing.T) {
	e := connect(t, "shm", nil)
	ctx := watchdogContext(t)
	if err := e.a.Send(ctx, make([]byte, 100), 9); err != nil {
		t.Fatal(err)
	}
	for {
		m, found, err := e.b.Probe(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if found {
			if m.Tag != 9 || m.Len != 100 {
				t.Error(m)
			}
			break
		}
	}
	if m, err := e.b.Recv(ctx, make([]byte, 10)); !errors.Is(err, syscall.EMSGSIZE) ||
		m.Len != 100 {
		t.Error(m, err)
	}
}

func TestMemoryOfTheChannel(t *testing.T) {
	e := connect(t, "shm", nil)
	ctx := watchdogContext(t)
	b, err := e.b.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("kedge"), 1<<17)
	failed := make(chan error)
	go func() { failed <- e.a.Send(ctx, sent, 0) }()
	m, err := e.b.Recv(ctx, b)
	if err != nil || <-failed != nil || !bytes.Equal(b[:m.Len], sent) {
		t.Error(m, err)
	}
	e.b.Free(b)
	if _, err := e.b.Alloc(1 << 40); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
}

func TestDialAndListenRefuse(t *testing.T) {
	ctx := watchdogContext(t)
	for _, c := range []struct {
		network, address string
		errno            syscall.Errno
	}{
		{"udp", "127.0.0.1:1", syscall.EINVAL},
		{"tcp", "no port", syscall.EINVAL},
		{"shm", "@kedge-go-no-such-name", syscall.ECONNREFUSED},
	} {
		if _, err := kedge.Dial(ctx, c.network, c.address, nil); !errors.Is(err, c.errno) {
			t.Error(c, err)
		}
	}
	l := listen(t, "shm", nil)
	if _, err := kedge.Listen("shm", l.Addr(), nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := l.Accept(gone)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() {
		_, err := l.Accept(ctx)
		failed <- err
	}()
	l.Close()
	if err := <-failed; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestASecret(t *testing.T) {
	right := &kedge.ChannelOptions{Secret: []byte("0123456789abcdef")}
	e := connect(t, "tcp", right)
	if err := e.a.Send(watchdogContext(t), []byte("x"), 1); err != nil {
		t.Error(err)
	}
	l := listen(t, "tcp", right)
	ctx, cancel := context.WithCancel(watchdogContext(t))
	done := make(chan struct{})
	go func() {
		l.Accept(ctx)
		close(done)
	}()
	wrong := &kedge.ChannelOptions{Secret: []byte("0123456789abcdeF")}
	if _, err := kedge.Dial(ctx, "tcp", l.Addr(), wrong); !errors.Is(err, syscall.EACCES) {
		t.Error(err)
	}
	cancel()
	<-done
}

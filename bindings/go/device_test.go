// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kedge"
)

// registrar is a device that an application wrote.
type registrar struct {
	mu   sync.Mutex
	next uint64
	live map[uint64]bool
	fail error
}

func (d *registrar) Register(addr uintptr, length int, access kedge.Access) (uint64, uint64,
	error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return 0, 0, d.fail
	}
	d.next++
	d.live[d.next] = true
	return d.next | 7<<32, 0, nil
}

func (d *registrar) Deregister(handle uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, handle&0xffffffff)
}

func TestADeviceInGo(t *testing.T) {
	watching(t)
	d := &registrar{live: map[uint64]bool{}}
	dev, err := kedge.NewDevice(d, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kedge.OpenCache(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := buffer(t, 16*page).Bytes()
	r, err := c.Get(b)
	if err != nil {
		t.Fatal(err)
	}
	if !d.live[uint64(r.LKey())] || r.RKey() != 7 || r.Offset() != 0 {
		t.Error(d.live, r.LKey(), r.RKey(), r.Offset())
	}
	r.Put()
	drop(t, b)
	if r, err = c.Get(b); err != nil {
		t.Fatal(err)
	}
	if len(d.live) != 1 || !d.live[uint64(r.LKey())] {
		t.Error(d.live)
	}
	r.Put()
	if _, err := c.Get(make([]byte, 2<<20)); !errors.Is(err, syscall.E2BIG) {
		t.Error(err)
	}
	if err := dev.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(d.live) != 0 {
		t.Error(d.live)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if err := dev.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := kedge.OpenCache(dev, nil); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestADeviceThatFails(t *testing.T) {
	watching(t)
	d := &registrar{live: map[uint64]bool{}}
	dev, err := kedge.NewDevice(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := openCache(t, dev, nil)
	b := make([]byte, page)
	d.fail = fmt.Errorf("the cable is out: %w", syscall.ENODEV)
	_, err = c.Get(b)
	if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "the cable is out") {
		t.Error(err)
	}
	d.fail = errors.New("something else")
	if _, err = c.Get(b); !errors.Is(err, syscall.EIO) ||
		!strings.Contains(err.Error(), "something else") {
		t.Error(err)
	}
	d.fail = nil
	r, err := c.Get(b)
	if err != nil {
		t.Fatal(err)
	}
	r.Put()
	if s := stats(t, c); s.Failures != 2 {
		t.Errorf("%+v", s)
	}
}

// The key of a peer's access is void when the put returns.
func TestRemoteAccessEndsWithItsPut(t *testing.T) {
	watching(t)
	d := &registrar{live: map[uint64]bool{}}
	dev, err := kedge.NewDevice(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := openCache(t, dev, nil)
	r, err := c.GetAccess(make([]byte, page), kedge.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	key := uint64(r.LKey())
	if !d.live[key] {
		t.Error("it is not registered")
	}
	r.Put()
	if d.live[key] {
		t.Error("it is registered still")
	}
}

type panicking struct {
	registrar
	panics bool
}

func (d *panicking) Register(addr uintptr, length int, access kedge.Access) (uint64, uint64,
	error) {
	if d.panics {
		panic("no such thing")
	}
	return d.registrar.Register(addr, length, access)
}

func TestAPanicInRegisterIsAnError(t *testing.T) {
	d := &panicking{registrar{live: map[uint64]bool{}}, true}
	dev, err := kedge.NewDevice(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kedge.OpenCache(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := buffer(t, page).Bytes()
	_, err = c.Get(b)
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "no such thing") {
		t.Error(err)
	}
	d.panics = false
	r, err := c.Get(b)
	if err != nil {
		t.Fatal(err)
	}
	r.Put()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil || len(d.live) != 0 {
		t.Error(err, d.live)
	}
}

// An object that was never opened is as a closed one: no call hangs or ends the process.
func TestZeroValuesAreClosed(t *testing.T) {
	var (
		c  kedge.Cache
		n  kedge.Notifier
		ch kedge.Channel
		b  = make([]byte, page)
	)
	_, get := c.Get(b)
	_, hint := c.Hint(b, kedge.LocalWrite)
	_, flush := c.Flush()
	_, resync := c.Resync()
	_, stats := c.Stats()
	_, watch := n.Watch(b, 1)
	_, info := n.Info()
	_, send := ch.StartSend(b, 1)
	_, about := ch.Info()
	_, _, probe := ch.Probe(0, 0)
	for i, err := range []error{get, hint, flush, resync, stats, c.Close(), watch, info,
		n.Close(), send, about, probe, ch.Poll(), ch.Close()} {
		if !errors.Is(err, os.ErrClosed) {
			t.Error(i, err)
		}
	}
}

package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
)

// profiles are profiles of our measured work only. Each work has files with its name before the
// extension.
type profiles struct {
	cpu, mem string // file names; empty for none
	begun    bool   // the current row has written profiles
}

// missing reports whether profiles are wanted but a row has written none.
func (p *profiles) missing() bool { return p.cpu+p.mem != "" && !p.begun }

// memoryRate is the number of allocated bytes per sample. It costs a few percent.
const memoryRate = 64 << 10

// init turns off sampling until the work begins.
func (p *profiles) init() {
	if p.mem != "" {
		runtime.MemProfileRate = 0
	}
}

// start starts the profiles of a work. stop writes them.
func (p *profiles) start(work string) (stop func() error, err error) {
	p.begun = true
	var cpu *os.File
	if p.cpu != "" {
		if cpu, err = os.Create(fileOf(p.cpu, work)); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	rate := runtime.MemProfileRate
	if p.mem != "" {
		runtime.MemProfileRate = memoryRate
	}
	return func() (err error) {
		if cpu != nil {
			pprof.StopCPUProfile()
			err = cpu.Close()
		}
		if p.mem != "" {
			err = errors.Join(err, writeMemory(fileOf(p.mem, work)))
			runtime.MemProfileRate = rate
		}
		return err
	}, nil
}

// writeMemory writes the allocations of all works until now, because the runtime cannot reset them.
func writeMemory(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC() // profiles end at the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

func fileOf(name, work string) string {
	ext := filepath.Ext(name)
	return strings.TrimSuffix(name, ext) + "-" + strings.NewReplacer("/", "-", " ", "-").Replace(work) + ext
}

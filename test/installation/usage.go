package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// What Linux tells of a process's memory, by the names of the lines in /proc/<pid>/status, see proc(5).
const (
	// PeakMemory is the most that has been resident at a time.
	PeakMemory = "VmHWM:"
	// OwnMemory is what of the resident memory maps no file, as an etcd does with its database.
	OwnMemory = "RssAnon:"
)

// clockTick is Linux's USER_HZ, the unit of a process's times.
const clockTick = time.Second / 100

// Memory reads a line of /proc/<pid>/status, in bytes.
func Memory(pid int, line string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseMemory(string(status), line)
}

func parseMemory(status, line string) (int64, error) {
	_, rest, _ := strings.Cut(status, line)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no %s in a process's status: %w", line, fs.ErrNotExist)
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10, err
}

// ProcessorTime is what a process has used of the processors, for itself and within the system.
func ProcessorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseProcessorTime(string(stat))
}

// parseProcessorTime adds up the user's and the system's time. The name of the program, in parentheses, may hold anything.
func parseProcessorTime(stat string) (time.Duration, error) {
	const userTime, systemTime = 11, 12 // counted from behind the name, see proc(5)
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) <= systemTime {
		return 0, fmt.Errorf("a process's stat has %d fields", len(fields))
	}
	user, err := strconv.ParseInt(fields[userTime], 10, 64)
	system, systemErr := strconv.ParseInt(fields[systemTime], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err, systemErr)
}

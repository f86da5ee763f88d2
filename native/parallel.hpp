// Threads, cancellation and progress: the one place that knows OpenMP.
#pragma once

#include <omp.h>
#include <pthread.h>
#ifdef GEMMULATE_X86
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>

namespace gemmulate {

struct Cancelled : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

// Called from time to time on the calling thread with (done, total); returns false to cancel.
using Poll = std::function<bool(int64_t, int64_t)>;

// A child of fork() has no OpenMP threads left and libgomp would wait for them for ever: it works alone.
inline std::atomic<bool> g_forked{false};
inline const int g_fork_hook = pthread_atfork(nullptr, nullptr, [] { g_forked.store(true); });

// Round to nearest, subnormals kept, whatever another library has set for this thread.
#ifdef GEMMULATE_X86
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  unsigned saved_;
};
#else
struct FloatEnvironment {
  FloatEnvironment() {}
};
#endif

// Threads that pay for work of about `ns` nanoseconds on one of them: starting and joining one costs some
// microseconds, and much more on a busy machine.
inline int useful_threads(double ns, int threads) {
  constexpr double kShare = 5e4;
  return ns < 2 * kShare ? 1 : std::min(threads, static_cast<int>(std::min(ns / kShare, 1e6)));
}

// Runs body(index, thread) for every index in [0, count), in order of index as threads become free.
template <class Body>
void parallel_for(int64_t count, int threads, const Poll& poll, const Body& body) {
  if (g_forked.load() || count <= 1) threads = 1;
  if (threads > count) threads = static_cast<int>(count);
  std::atomic<int64_t> next{0}, done{0};
  std::atomic<bool> stop{false};
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  const auto work = [&](int thread) {
    const FloatEnvironment environment;
    auto last = std::chrono::steady_clock::now();
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) break;
      try {
        body(index, thread);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
        stop.store(true);
      }
      done.fetch_add(1, std::memory_order_relaxed);
      if (thread == 0 && poll) {
        const auto now = std::chrono::steady_clock::now();
        if (now - last > std::chrono::milliseconds(50)) {
          last = now;
          if (!poll(done.load(), count)) {
            if (!failed.exchange(true)) error = std::make_exception_ptr(Cancelled{});
            stop.store(true);
          }
        }
      }
    }
  };
  if (threads <= 1) {
    work(0);
  } else {
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gemmulate

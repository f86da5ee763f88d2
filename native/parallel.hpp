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
#ifdef GEMMULATE_STD_THREADS
#include <thread>
#include <vector>
#endif

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
  constexpr double kShare = 2.5e5;
  return ns < 2 * kShare ? 1 : std::min(threads, static_cast<int>(std::min(ns / kShare, 1e6)));
}

// One parallel loop: hands out indices, collects the first error, serves the poll on the calling thread.
class Loop {
 public:
  Loop(int64_t count, const Poll& poll) : count_(count), poll_(poll) {}

  template <class Body>
  void work(bool leader, const Body& body) {
    const FloatEnvironment environment;
    Loop* const outer = current_;
    const bool outer_leader = leader_;
    current_ = this;
    leader_ = leader;
    try {
      for (int64_t index; !stop_.load(std::memory_order_relaxed) &&
                          (index = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
        body(index);
        done_.fetch_add(1, std::memory_order_relaxed);
        check();
      }
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      stop_.store(true);
    }
    current_ = outer;
    leader_ = outer_leader;
  }

  void check() {
    if (stop_.load(std::memory_order_relaxed)) throw Cancelled{};
    if (!leader_ || !poll_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    if (!poll_(done_.load(), count_)) throw Cancelled{};
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  // Called within long bodies: throws Cancelled where the loop is to stop.
  static void checkpoint() {
    if (current_) current_->check();
  }

 private:
  int64_t count_;
  const Poll& poll_;
  std::atomic<int64_t> next_{0}, done_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  std::exception_ptr error_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  static inline thread_local Loop* current_ = nullptr;
  static inline thread_local bool leader_ = false;
};

// Runs body(index) for every index in [0, count), in order of index as threads become free.
template <class Body>
void parallel_for(int64_t count, int threads, const Poll& poll, const Body& body) {
  if (g_forked.load() || count <= 1) threads = 1;
  if (threads > count) threads = static_cast<int>(count);
  Loop loop(count, poll);
  if (threads <= 1) {
    loop.work(true, body);
  } else {
#ifdef GEMMULATE_STD_THREADS  // the ThreadSanitizer build: see CMakeLists.txt
    std::vector<std::jthread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back([&] { loop.work(false, body); });
    loop.work(true, body);
    team.clear();  // joins
#else
#pragma omp parallel num_threads(threads)
    loop.work(omp_get_thread_num() == 0, body);
#endif
  }
  loop.rethrow();
}

}  // namespace gemmulate

#pragma once

#include <string>

#include "output/screen.hpp"

namespace dlock {

/// What is drawn again and again in the same place of a terminal: on its second screen, as an
/// editor does, for there a new size leaves nothing behind. Draws only while its job is in front.
/// The end of it gives the first screen back.
class Picture {
 public:
  explicit Picture(int fd) : fd_(fd) {}
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  ~Picture() { leave(); }

  /// The text that draws `lines` in place of the lines before; each is as wide as `screen` at most.
  /// Lines below the screen are cut. Empty while the job is not in front.
  std::string drawing(const std::string& lines, const Screen& screen);
  /// Until the next drawing. A terminal that takes nothing (^S) is left as it is.
  void leave();
  bool drawn() const { return drawn_; }

 private:
  int fd_;
  bool drawn_ = false;
};

/// One line on a terminal that comes and goes, below what was written before, of which nothing
/// stays. Draws only while its job is in front.
class LiveLine {
 public:
  explicit LiveLine(int fd) : fd_(fd) {}
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { wipe(); }

  /// Columns it leaves free: what the terminal says of ^C stands behind it, and must not begin a
  /// line of its own.
  static constexpr std::size_t margin = 3;

  /// `text` is escaped; cut to what fits.
  void draw(const std::string& text);
  void wipe();

 private:
  std::string wiping() const;

  int fd_;
  std::size_t width_ = 0;  ///< of what stands there now
};

}  // namespace dlock

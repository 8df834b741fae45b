// The texts of exceptions.
#pragma once

#include <exception>
#include <string>

#include <gtest/gtest.h>

namespace tandem::testing {

/// The text of the E that f() throws; "" (and a test failure) if it throws nothing or another exception.
template <class E, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another type of exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

}  // namespace tandem::testing

/// Expects that `call` throws an E with this complete text.
#define EXPECT_ERROR(E, call, text) EXPECT_EQ(::tandem::testing::error_text<E>([&] { static_cast<void>(call); }), text)

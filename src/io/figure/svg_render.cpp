#include "io/figure/svg_render.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string_view>

#include "base/error.hpp"
#include "io/report/web_assets.hpp"

namespace weft {
namespace {

// The parts of the libraries' interfaces that are used here, as their headers declare them (librsvg 2.46, cairo 1.2 and
// fontconfig 2.4 and later); objects of theirs are pointers that only
// they look into, and bytes are char.
using CairoSurface = void;
using CairoContext = void;
using RsvgHandle = void;
using CairoWrite = int (*)(void* closure, const char* data, unsigned int length);  // 0: written
struct RsvgRectangle {
  double x, y, width, height;
};

constexpr int kCairoArgb32 = 0, kCairoWritten = 0, kCairoWriteError = 11;
constexpr double kPointsOfPixel = 72.0 / 96.0;

// A library by the name that its binary interface has.
class LoadedLibrary {
 public:
  explicit LoadedLibrary(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  bool is_there() const { return handle_ != nullptr; }
  const char* name() const { return name_; }
  // Sets the pointer to the library's function.
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = std::bit_cast<Function*>(dlsym(handle_, name));  // POSIX: pointers to functions and data are alike
    if (function == nullptr) fail("{} has no {}: it is another version than Weft knows", name_, name);
  }

 private:
  const char* name_;
  void* handle_;  // stays until the process ends, as the libraries' own caches do
};

struct Renderer {
  CairoSurface* (*image_surface)(int format, int width, int height) = nullptr;
  CairoSurface* (*pdf_surface)(CairoWrite write, void* closure, double width, double height) = nullptr;
  int (*write_to_png)(CairoSurface*, CairoWrite write, void* closure) = nullptr;
  void (*finish)(CairoSurface*) = nullptr;
  void (*destroy_surface)(CairoSurface*) = nullptr;
  CairoContext* (*create)(CairoSurface*) = nullptr;
  void (*destroy)(CairoContext*) = nullptr;
  void (*set_source_rgb)(CairoContext*, double red, double green, double blue) = nullptr;
  void (*paint)(CairoContext*) = nullptr;
  int (*status)(CairoContext*) = nullptr;
  RsvgHandle* (*handle_from_data)(const char* data, std::size_t size, void** error) = nullptr;
  int (*render_document)(RsvgHandle*, CairoContext*, const RsvgRectangle* viewport, void** error) = nullptr;
  int (*size_in_pixels)(RsvgHandle*, double* width, double* height) = nullptr;
  void (*unref)(void*) = nullptr;
  int (*add_font_file)(void* config, const char* path) = nullptr;
};

struct RenderLibraries {
  LoadedLibrary cairo{"libcairo.so.2"}, rsvg{"librsvg-2.so.2"}, gobject{"libgobject-2.0.so.0"},
      fontconfig{"libfontconfig.so.1"};

  std::string missing() const {
    std::string names;
    for (const LoadedLibrary* library : {&cairo, &rsvg, &gobject, &fontconfig}) {
      if (!library->is_there()) names += (names.empty() ? "" : ", ") + std::string(library->name());
    }
    return names;
  }
};

std::string problem_of(const RenderLibraries& libraries) {
  const std::string missing = libraries.missing();
  if (missing.empty()) return "";
  return fmt::format(
      "PNG and PDF are rendered by librsvg, and {} cannot be loaded here (Debian: librsvg2-2); --svg "
      "needs no library",
      missing);
}

// The font of figures as a file in memory, since librsvg takes fonts from files only. It stays open until the process
// ends, because the libraries keep its name.
std::string font_file() {
  const int file = memfd_create("weft_sans.ttf", MFD_CLOEXEC);
  if (file < 0) fail("the font of figures needs a file in memory, which this system does not give");
  for (std::string_view rest = kFigureFont; !rest.empty();) {
    const ssize_t written = ::write(file, rest.data(), rest.size());
    if (written <= 0) fail("the font of figures cannot be written to a file in memory");
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return fmt::format("/proc/self/fd/{}", file);
}

Renderer load_renderer() {
  const RenderLibraries libraries;
  if (const std::string problem = problem_of(libraries); !problem.empty()) fail("{}", problem);
  Renderer r;
  libraries.cairo.find(r.image_surface, "cairo_image_surface_create");
  libraries.cairo.find(r.pdf_surface, "cairo_pdf_surface_create_for_stream");
  libraries.cairo.find(r.write_to_png, "cairo_surface_write_to_png_stream");
  libraries.cairo.find(r.finish, "cairo_surface_finish");
  libraries.cairo.find(r.destroy_surface, "cairo_surface_destroy");
  libraries.cairo.find(r.create, "cairo_create");
  libraries.cairo.find(r.destroy, "cairo_destroy");
  libraries.cairo.find(r.set_source_rgb, "cairo_set_source_rgb");
  libraries.cairo.find(r.paint, "cairo_paint");
  libraries.cairo.find(r.status, "cairo_status");
  libraries.rsvg.find(r.handle_from_data, "rsvg_handle_new_from_data");
  libraries.rsvg.find(r.render_document, "rsvg_handle_render_document");
  libraries.rsvg.find(r.size_in_pixels, "rsvg_handle_get_intrinsic_size_in_pixels");
  libraries.gobject.find(r.unref, "g_object_unref");
  libraries.fontconfig.find(r.add_font_file, "FcConfigAppFontAddFile");
  return r;
}

// One picture on its way to a surface.
class RenderedPicture {
 public:
  RenderedPicture(const Renderer& renderer, const std::string& svg)
      : renderer_(renderer), handle_(renderer.handle_from_data(svg.data(), svg.size(), nullptr), renderer.unref) {
    if (handle_ == nullptr || renderer.size_in_pixels(handle_.get(), &width_, &height_) == 0) {
      fail("librsvg cannot read the figure");
    }
    const std::string font = font_file();
    if (renderer.add_font_file(nullptr, font.c_str()) == 0) {
      fail("fontconfig does not take the font of figures");
    }
  }
  double width() const { return width_; }
  double height() const { return height_; }

  void paint(CairoSurface* surface, double scale) const {
    const std::unique_ptr<CairoContext, void (*)(void*)> context(renderer_.create(surface), renderer_.destroy);
    renderer_.set_source_rgb(context.get(), 1, 1, 1);
    renderer_.paint(context.get());
    const RsvgRectangle viewport{0, 0, width_ * scale, height_ * scale};
    const bool rendered = renderer_.render_document(handle_.get(), context.get(), &viewport, nullptr) != 0;
    if (!rendered || renderer_.status(context.get()) != 0) fail("librsvg cannot render the figure");
  }

 private:
  const Renderer& renderer_;
  std::unique_ptr<RsvgHandle, void (*)(void*)> handle_;
  double width_ = 0, height_ = 0;
};

// What cairo calls with every piece of the file; the closure is the stream.
int write_piece(void* closure, const char* data, unsigned int length) {
  auto& out = *static_cast<std::ostream*>(closure);
  out.write(data, static_cast<std::streamsize>(length));
  return out ? kCairoWritten : kCairoWriteError;
}

}  // namespace

std::string rendering_problem() {
  return problem_of(RenderLibraries{});
}

void write_png(std::ostream& out, const std::string& svg, double scale) {
  const Renderer renderer = load_renderer();
  const RenderedPicture picture(renderer, svg);
  const auto pixels = [&](double length) { return static_cast<int>(std::lround(length * scale)); };
  const std::unique_ptr<CairoSurface, void (*)(void*)> surface(
      renderer.image_surface(kCairoArgb32, pixels(picture.width()), pixels(picture.height())),
      renderer.destroy_surface);
  picture.paint(surface.get(), scale);
  if (renderer.write_to_png(surface.get(), write_piece, &out) != 0) fail("cairo cannot write the figure as PNG");
}

void write_pdf(std::ostream& out, const std::string& svg) {
  const Renderer renderer = load_renderer();
  const RenderedPicture picture(renderer, svg);
  const std::unique_ptr<CairoSurface, void (*)(void*)> surface(
      renderer.pdf_surface(write_piece, &out, picture.width() * kPointsOfPixel, picture.height() * kPointsOfPixel),
      renderer.destroy_surface);
  picture.paint(surface.get(), kPointsOfPixel);
  renderer.finish(surface.get());
}

}  // namespace weft

#include "model/run/symbol_bindings.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace clebsch {
namespace {

/// A loaded library, as far as it says which symbols it takes from where (System V ABI, "Dynamic Linking").
struct Object {
  std::string name;
  ElfW(Addr) base = 0;
  ElfW(Addr) protected_begin = 0, protected_end = 0;  ///< made read-only once the linker was done
  const ElfW(Dyn) * dynamic = nullptr;
};

/// A place in the table of a library and the symbol whose address belongs there.
struct Entry {
  const char* symbol;
  void** place;
};

int find_object(dl_phdr_info* info, std::size_t, void* data) {
  Object& object = *static_cast<Object*>(data);
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  const char* const file = slash ? slash + 1 : info->dlpi_name;
  if (std::strncmp(file, object.name.c_str(), object.name.size()) != 0) return 0;
  object.name = info->dlpi_name;
  object.base = info->dlpi_addr;
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const ElfW(Phdr)& part = info->dlpi_phdr[k];
    const ElfW(Addr) begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_DYNAMIC) object.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    if (part.p_type != PT_GNU_RELRO) continue;
    object.protected_begin = begin / page * page;
    object.protected_end = (begin + part.p_memsz) / page * page;
  }
  return 1;
}

/// The loaded library whose file name begins with `name`; without `dynamic` when there is none. Nothing is done with it
/// while dl_iterate_phdr() holds the linker's lock.
Object loaded(const std::string& name) {
  Object object;
  object.name = name;
  if (dl_iterate_phdr(find_object, &object) == 0) object.dynamic = nullptr;
  return object;
}

/// The entries of all symbols for which `wanted(name)` holds.
template <class Wanted>
std::vector<Entry> entries(const Object& object, Wanted wanted) {
  std::vector<Entry> found;
  if (object.dynamic == nullptr) return found;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};  // of functions, of everything else
  std::size_t bytes[2] = {0, 0};
  for (const ElfW(Dyn)* item = object.dynamic; item->d_tag != DT_NULL; ++item) {
    // glibc has added the base on most machines, others have not.
    const ElfW(Addr) address = item->d_un.d_ptr < object.base ? item->d_un.d_ptr + object.base : item->d_un.d_ptr;
    if (item->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (item->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(address);
    if (item->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(address);
    if (item->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(address);
    if (item->d_tag == DT_PLTRELSZ) bytes[0] = item->d_un.d_val;
    if (item->d_tag == DT_RELASZ) bytes[1] = item->d_un.d_val;
    if (item->d_tag == DT_PLTREL && item->d_un.d_val != DT_RELA) return found;  // another layout, of 32-bit machines
  }
  if (symbols == nullptr || names == nullptr) return found;
  for (int table = 0; table < 2; ++table) {
    for (std::size_t r = 0; tables[table] != nullptr && r < bytes[table] / sizeof(ElfW(Rela)); ++r) {
      const ElfW(Rela)& relocation = tables[table][r];
      const auto index = static_cast<std::size_t>(static_cast<std::uint64_t>(relocation.r_info) >> 32);
      if (index == 0 || relocation.r_addend != 0) continue;
      const char* const name = names + symbols[index].st_name;
      if (wanted(name)) found.push_back({name, reinterpret_cast<void**>(object.base + relocation.r_offset)});
    }
  }
  return found;
}

/// Fortran's names, as BLAS and LAPACK have them: dgemm_, dgetrf_.
bool is_fortran(const char* name) {
  const std::size_t length = std::strlen(name);
  if (length < 4 || length > 16 || name[length - 1] != '_') return false;
  for (std::size_t k = 0; k + 1 < length; ++k)
    if (!(name[k] >= 'a' && name[k] <= 'z') && !(name[k] >= '0' && name[k] <= '9')) return false;
  return true;
}

void write(const Object& object, void** place, void* address) {
  const auto at = reinterpret_cast<ElfW(Addr)>(place);
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  void* const begin = reinterpret_cast<void*>(at / page * page);
  const bool locked = at >= object.protected_begin && at < object.protected_end;
  if (locked && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return;
  // One store of a whole pointer: whoever calls through it meanwhile gets the one function or the other.
  __atomic_store_n(place, address, __ATOMIC_RELEASE);
  if (locked) mprotect(begin, page, PROT_READ);
}

}  // namespace

std::string bound_library(const std::string& caller, const char* symbol) {
  const Object object = loaded(caller);
  const auto found = entries(object, [symbol](const char* name) { return std::strcmp(name, symbol) == 0; });
  if (found.empty()) return {};
  void* const address = __atomic_load_n(found.front().place, __ATOMIC_ACQUIRE);
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  // Before the first call it is a stub of the caller, which has the linker look.
  const bool stub = reinterpret_cast<ElfW(Addr)>(info.dli_fbase) == object.base &&
                    (info.dli_sname == nullptr || info.dli_saddr != address);
  return stub ? std::string() : std::string(info.dli_fname);
}

void bind_own_blas(const std::string& caller) {
  const Object object = loaded(caller);
  void* const handle = object.dynamic ? dlopen(object.name.c_str(), RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (handle == nullptr) return;
  for (const Entry& entry : entries(object, is_fortran)) {
    // Looks in the library and in those it needs, not in the process.
    void* const own = dlsym(handle, entry.symbol);
    if (own != nullptr && own != __atomic_load_n(entry.place, __ATOMIC_ACQUIRE)) write(object, entry.place, own);
  }
  dlclose(handle);
}

}  // namespace clebsch

import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import { type Plugin, defineConfig } from 'vite'

const assets = join(import.meta.dirname, 'dist/assets')

/** Stores scripts and styles compressed, too, so that the gateway never compresses them. */
const compress: Plugin = {
  name: 'compress',
  apply: 'build',
  // Runs only after everything was written, so that it hides no other error.
  writeBundle() {
    for (const name of readdirSync(assets)) {
      const content = readFileSync(join(assets, name))
      writeFileSync(join(assets, `${name}.br`), brotliCompressSync(content))
      writeFileSync(join(assets, `${name}.gz`), gzipSync(content, { level: 9 }))
    }
  },
}

/** Stores the licences of the bundled packages, which require it, and names them in the document. */
function licences(): Plugin {
  let file = ''
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((output) =>
        output.type === 'chunk' ? Object.keys(output.modules) : [],
      )
      const source = [...new Set(modules.flatMap(toPackageFolder))].toSorted().map(toNotice)
      const asset = { type: 'asset', name: 'licences.txt', source: source.join('\n') } as const
      file = this.getFileName(this.emitFile(asset))
    },
    transformIndexHtml: {
      order: 'post',
      handler: () => [{ tag: 'link', attrs: { rel: 'license', href: `/app/${file}` } }],
    },
  }
}

/** The folder of the package that has the module; empty for our own. */
const toPackageFolder = (module: string): string[] =>
  /^\/.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(module)?.slice(0, 1) ?? []

function toNotice(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry))
  if (file === undefined) throw new Error(`${name} has no file with its licence`)
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), 'utf8')}`
}

/**
 * Builds the dashboard into `dist/`, which the gateway serves at /app. `npx vite gateway/web` serves
 * the sources instead, and sends every other path to a gateway at TOLLGATE_URL.
 */
export default defineConfig({
  root: import.meta.dirname,
  base: '/app/',
  plugins: [react(), licences(), compress],
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    // The policy of the page allows no data: addresses.
    assetsInlineLimit: 0,
    // Scripts are loaded view by view; the style is one small file.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: { '^/(?!app/)': process.env['TOLLGATE_URL'] ?? 'http://localhost:8080' },
  },
})

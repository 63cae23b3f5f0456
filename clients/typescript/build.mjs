// Builds dist as ES modules and dist/cjs as CommonJS, each with its types.
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'

process.chdir(import.meta.dirname)
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc')
const compile = project => execFileSync(process.execPath, [tsc, '-p', project], { stdio: 'inherit' })

rmSync('dist', { recursive: true, force: true })
compile('tsconfig.json')
// Whether tsc writes an ES module or CommonJS depends on the package.json next to a .ts file.
mkdirSync('dist/cjs')
const own = 'src/package.json'
writeFileSync(own, '{ "type": "commonjs" }\n')
try {
  compile('tsconfig.cjs.json')
} finally {
  renameSync(own, 'dist/cjs/package.json')
}
if (existsSync('../../LICENSE')) copyFileSync('../../LICENSE', 'LICENSE')
